// Machine files: interpolation of rates in logarithms, and the file read and written.
#include "src/machine/machine_file.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

namespace {

constexpr const char* kFormat = "vit_hybrid machine 1";
// What a machine may have.
struct Limits {
  double least = 1.0;  // of a rate a second, of bytes, and of sizes
  double most = 1e17;  // a hundred times the fastest GPU
  bool may_be_zero = false;
};
constexpr Limits kSeconds = {1e-18, 1.0, /*may_be_zero=*/true};  // of a message, a byte or an operation
constexpr int kMostCount = 1 << 16;                              // of a node's ranks, threads and cores

// Where a size lies between two points: the index of the lower one, and how much of the upper one counts.
struct Place {
  size_t lower = 0;
  double share = 0.0;
};

Place place_of(double size, const std::vector<double>& points) {
  if (!(size > points.front())) {
    return {};
  }
  if (size >= points.back()) {
    return {points.size() - 1, 0.0};
  }
  const auto upper = std::upper_bound(points.begin(), points.end(), size) - points.begin();
  const auto lower = static_cast<size_t>(upper - 1);
  return {lower, std::log(size / points[lower]) / std::log(points[lower + 1] / points[lower])};
}

// Reads what people may have written.
class Reader {
 public:
  Reader(const Json& json, std::string path, std::string place)
      : json_(json), path_(std::move(path)), place_(std::move(place)) {
    if (!json_.is_object()) {
      fail("", "is no object {...}");
    }
  }

  // Nothing that was written here is passed over.
  void require_known(const std::vector<std::string>& known) const {
    for (const auto& [key, value] : json_.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        fail(shown(key), str("is not known here; known are ", join(known)));
      }
    }
  }
  bool has(const std::string& key) const { return json_.contains(key); }
  Reader inside(const std::string& key) const { return {value(key), path_, name(key)}; }
  std::string text(const std::string& key) const {
    if (!value(key).is_string()) fail(key, str("is ", shown(value(key).dump()), ", no text"));
    return value(key).get<std::string>();
  }
  double number(const std::string& key, const Limits& limits = {}) const { return checked(value(key), key, limits); }
  int count(const std::string& key) const {
    const double number = this->number(key);
    if (number != std::floor(number) || number > kMostCount) {
      fail(key, str("is ", number, ", no whole number up to ", kMostCount));
    }
    return static_cast<int>(number);
  }
  std::vector<double> numbers(const std::string& key) const {
    const Json& list = value(key);
    if (!list.is_array() || list.empty()) fail(key, "is no list of numbers");
    std::vector<double> numbers;
    for (const Json& item : list) {
      numbers.push_back(checked(item, list.size() == 1 ? key : str(key, "[", numbers.size(), "]"), {}));
    }
    return numbers;
  }
  const Json& value(const std::string& key) const {
    if (!json_.contains(key)) fail(key, "is missing");
    return json_[key];
  }
  [[noreturn]] void fail(const std::string& key, const std::string& what) const {
    throw Error(ErrorClass::kBadData, str("machine file '", path_, "': ", name(key), " ", what),
                "docs/planner.md, \"Machine files\", has the format; vit_hybrid calibrate writes one");
  }
  const Json& json() const { return json_; }

 private:
  std::string name(const std::string& key) const {
    return place_.empty() ? key : key.empty() ? place_ : place_ + "." + key;
  }
  double checked(const Json& item, const std::string& key, const Limits& limits) const {
    if (!item.is_number()) fail(key, str("is ", shown(item.dump()), ", no number"));
    const auto number = item.get<double>();
    if (!(number >= limits.least && number <= limits.most) && !(number == 0.0 && limits.may_be_zero)) {
      fail(key, str("is ", number, ", not ", limits.may_be_zero ? "0 or " : "", "a number from ", limits.least, " to ",
                    limits.most));
    }
    return number;
  }

  const Json& json_;
  std::string path_;
  std::string place_;
};

RateTable read_table(const Reader& in, const WorkKind& kind) {
  in.require_known({"unit", "axes", "rates", "source"});
  RateTable table;
  size_t size = 1;
  const Reader axes = in.inside("axes");
  for (const char* const name : kind.axes) {
    auto points = axes.numbers(name);
    if (!std::is_sorted(points.begin(), points.end(), std::less_equal<>())) axes.fail(name, "does not ascend");
    size *= points.size();
    table.axes.push_back({name, std::move(points)});
  }
  if (axes.json().size() != kind.axes.size()) in.fail("axes", str("are not ", kind.axes.size()));
  if (in.text("unit") != kind.unit) in.fail("unit", str("is '", shown(in.text("unit")), "', not ", kind.unit));
  table.rates = in.numbers("rates");
  if (table.rates.size() != size) {
    in.fail("rates", str("are ", table.rates.size(), ", where the axes have ", size, " points"));
  }
  table.source = in.has("source") ? in.text("source") : "";
  return table;
}

RateTables read_tables(const Reader& in, const std::vector<WorkKind>& kinds) {
  RateTables tables;
  for (const auto& [name, value] : in.json().items()) {
    const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                   [&known_name = name](const auto& known) { return known_name == known.name; });
    if (kind == kinds.end()) in.fail(shown(name), "is no kind of work that is known");
    tables.emplace(name, read_table(in.inside(name), *kind));
  }
  return tables;
}

Json to_json(const RateTables& tables, const std::vector<WorkKind>& kinds) {
  Json json = Json::object();
  for (const WorkKind& kind : kinds) {
    const auto found = tables.find(kind.name);
    if (found == tables.end()) {
      continue;
    }
    Json axes = Json::object();
    for (const auto& axis : found->second.axes) {
      axes[axis.name] = axis.points;
    }
    json[kind.name] = {{"unit", kind.unit}, {"axes", std::move(axes)}, {"rates", found->second.rates}};
    if (!found->second.source.empty()) {
      json[kind.name]["source"] = found->second.source;
    }
  }
  return json;
}

}  // namespace

double RateTable::at(const std::vector<double>& sizes) const {
  VH_ASSERT(sizes.size() == axes.size(), str(sizes.size(), " sizes for ", axes.size(), " axes"));
  std::vector<double> logs(rates.size());
  std::transform(rates.begin(), rates.end(), logs.begin(), [](double rate) { return std::log(rate); });
  for (size_t i = axes.size(); i-- > 0;) {  // the last axis, whose points are neighbours, is folded first
    const size_t points = axes[i].points.size();
    const Place place = place_of(sizes[i], axes[i].points);
    std::vector<double> folded(logs.size() / points);
    for (size_t row = 0; row < folded.size(); ++row) {
      const double lower = logs[row * points + place.lower];
      folded[row] = place.share > 0.0 ? lower + place.share * (logs[row * points + place.lower + 1] - lower) : lower;
    }
    logs = std::move(folded);
  }
  return std::exp(logs.front());
}

const std::vector<WorkKind>& kernel_kinds() {
  static const std::vector<WorkKind> kinds = {
      {"product_forward", "FLOP/s", {"rows", "inputs", "outputs"}},
      {"product_input", "FLOP/s", {"rows", "inputs", "outputs"}},
      {"product_weight", "FLOP/s", {"rows", "inputs", "outputs"}},
      {"packing", "elements/s", {"elements"}},
      {"attention_forward", "FLOP/s", {"tokens", "head_dim"}},
      {"attention_backward", "FLOP/s", {"tokens", "head_dim"}},
      {"norm_forward", "elements/s", {"elements"}},
      {"norm_backward", "elements/s", {"elements"}},
      {"gelu_forward", "elements/s", {"elements"}},
      {"gelu_backward", "elements/s", {"elements"}},
      {"dropout", "elements/s", {"elements"}},
      {"stream", "bytes/s", {"bytes"}},
      {"optimizer", "elements/s", {"elements"}},
  };
  return kinds;
}

const std::vector<WorkKind>& message_kinds() {
  static const std::vector<WorkKind> kinds = {
      {"all_reduce", "bytes/s", {"ranks", "bytes"}},
      {"reduce_scatter", "bytes/s", {"ranks", "bytes"}},
      {"all_gather", "bytes/s", {"ranks", "bytes"}},
      {"exchange", "bytes/s", {"bytes"}},
  };
  return kinds;
}

double bus_factor(const std::string& message_kind, double ranks) {
  const double part = (ranks - 1.0) / ranks;
  return message_kind == "all_reduce" ? 2.0 * part : message_kind == "exchange" ? 1.0 : part;
}

double MachineFile::bytes_of_rank(int on_node, int ranks_per_gpu) const {
  constexpr double kStart = 140 << 20;
  if (memory.bytes == 0.0) {
    return 0.0;
  }
  return device == "cuda" ? memory.bytes / std::max(ranks_per_gpu, (on_node + cores - 1) / cores)
                          : std::max(memory.bytes / on_node - kStart, 1.0);
}

const Population& MachineFile::nearest(int ranks, int threads) const {
  const auto ratio = [](int a, int b) { return std::abs(std::log(static_cast<double>(a) / b)); };
  const auto distance = [&](const Population& one) {
    return std::pair(ratio(one.threads, threads), ratio(one.ranks, ranks));
  };
  return *std::min_element(populations.begin(), populations.end(),
                           [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
}

MachineFile parse_machine_file(const std::string& text, const std::string& path) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::out_of_range& error) {
    const std::string what = error.what();  // "[json.exception.out_of_range.406] number overflow parsing '1e999'"
    throw Error(ErrorClass::kBadData,
                str("machine file '", path, "' has a number that is too large: ", what.substr(what.find(']') + 2)),
                "vit_hybrid calibrate writes one");
  } catch (const Json::parse_error& error) {
    throw Error(ErrorClass::kBadData,
                error.byte > text.size()
                    ? str("machine file '", path, "' ends before its JSON does, after ", text.size(), " bytes")
                    : str("machine file '", path, "' is no JSON from byte ", error.byte, " of ", text.size(), " on"),
                "vit_hybrid calibrate writes one");
  }
  if (!json.is_object() || !json.contains("format") || json["format"] != Json(kFormat)) {
    throw Error(ErrorClass::kBadData,
                str("machine file '", path, "' does not begin with \"format\": \"", kFormat, "\""),
                "vit_hybrid calibrate writes one");
  }
  const Reader in(json, path, "");
  in.require_known({"format", "machine", "device", "cores", "memory", "populations", "between_nodes", "source"});
  MachineFile machine;
  machine.name = in.text("machine");
  machine.device = in.text("device");
  if (machine.device != "cpu" && machine.device != "cuda") {
    in.fail("device", str("is '", shown(machine.device), "', neither cpu nor cuda"));
  }
  machine.cores = in.count("cores");
  machine.source = in.has("source") ? in.text("source") : "";
  if (in.has("memory")) {
    const Reader memory = in.inside("memory");
    memory.require_known({"bytes", "source"});
    machine.memory = {memory.number("bytes"), memory.has("source") ? memory.text("source") : ""};
  }
  const Json& populations = in.value("populations");
  if (!populations.is_array() || populations.empty()) in.fail("populations", "is no list of them");
  for (size_t i = 0; i < populations.size(); ++i) {
    const Reader one(populations[i], path, str("populations[", i, "]"));
    one.require_known({"ranks", "threads", "types", "messages", "operation_s", "reading_bytes_per_s"});
    Population population{one.count("ranks"), one.count("threads")};
    const Reader types = one.inside("types");
    types.require_known({kPrecisionNames.begin(), kPrecisionNames.end()});
    for (const auto& [type, tables] : types.json().items()) {
      population.types[type] = read_tables(types.inside(type), kernel_kinds());
    }
    population.messages = one.has("messages") ? read_tables(one.inside("messages"), message_kinds()) : RateTables();
    population.operation_s = one.has("operation_s") ? one.number("operation_s", kSeconds) : 0.0;
    population.reading_bytes_per_s = one.has("reading_bytes_per_s") ? one.number("reading_bytes_per_s") : 0.0;
    const auto is_same = [&](const Population& other) {
      return other.ranks == population.ranks && other.threads == population.threads;
    };
    if (std::any_of(machine.populations.begin(), machine.populations.end(), is_same)) {
      in.fail(str("populations[", i, "]"), "has the ranks and threads of one before it");
    }
    machine.populations.push_back(std::move(population));
  }
  if (in.has("between_nodes")) {
    const Reader network = in.inside("between_nodes");
    network.require_known({"bytes_per_s", "latency_s", "message_s", "byte_s", "look_bytes", "source"});
    const auto if_known = [&](const char* name) { return network.has(name) ? network.number(name, kSeconds) : 0.0; };
    machine.between_nodes = {network.number("bytes_per_s"),
                             network.number("latency_s", kSeconds),
                             if_known("message_s"),
                             network.has("byte_s") ? std::optional(if_known("byte_s")) : std::nullopt,
                             network.has("look_bytes") ? std::optional(network.number("look_bytes")) : std::nullopt,
                             network.has("source") ? network.text("source") : ""};
  }
  return machine;
}

std::string to_text(const MachineFile& machine) {
  Json json = {{"format", kFormat}, {"machine", machine.name}, {"device", machine.device}, {"cores", machine.cores}};
  if (!machine.source.empty()) {
    json["source"] = machine.source;
  }
  if (machine.memory.bytes > 0.0) {
    json["memory"] = {{"bytes", machine.memory.bytes}};
    if (!machine.memory.source.empty()) {
      json["memory"]["source"] = machine.memory.source;
    }
  }
  json["populations"] = Json::array();
  for (const Population& one : machine.populations) {
    Json types = Json::object();
    for (const auto& [type, tables] : one.types) {
      types[type] = to_json(tables, kernel_kinds());
    }
    json["populations"].push_back({{"ranks", one.ranks},
                                   {"threads", one.threads},
                                   {"operation_s", one.operation_s},
                                   {"types", std::move(types)},
                                   {"messages", to_json(one.messages, message_kinds())}});
    if (one.reading_bytes_per_s > 0.0) {
      json["populations"].back()["reading_bytes_per_s"] = one.reading_bytes_per_s;
    }
  }
  if (const NodeNetwork& network = machine.between_nodes; network.bytes_per_s > 0.0) {
    json["between_nodes"] = {
        {"bytes_per_s", network.bytes_per_s}, {"latency_s", network.latency_s}, {"message_s", network.message_s}};
    if (network.byte_s) {
      json["between_nodes"]["byte_s"] = *network.byte_s;
    }
    if (network.look_bytes) {
      json["between_nodes"]["look_bytes"] = *network.look_bytes;
    }
    if (!network.source.empty()) {
      json["between_nodes"]["source"] = network.source;
    }
  }
  return json.dump(1) + "\n";
}

}  // namespace vit_hybrid::train
