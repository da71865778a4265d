// Names that variables are asked for by, and the text of Zarr stores.
#include "data/tools/inspect_variables.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "data/datasets/static_fields.h"
#include "data/reading/box_runs.h"
#include "data/zarr/zarr_fields.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

constexpr int64_t kMostPlanes = 512;  // of a variable that get a name
constexpr const char* kInFiles = "in files";

std::string packing_text(const Packing& packing) {
  const bool is_scaled = packing.scale != 1.0 || packing.offset != 0.0;
  const std::string scaled =
      is_scaled ? str("stored x ", number_text(packing.scale, 9), " + ", number_text(packing.offset, 9)) : "";
  const std::string fill = packing.has_fill ? str("stored ", number_text(packing.fill, 9), " is missing") : "";
  return scaled + (scaled.empty() || fill.empty() ? "" : "; ") + fill;
}

// Whether a word means this plane. What is not found, or means two things, is an error, here an answer.
bool is_named(const std::string& word, std::span<const FieldVariable> variables, size_t number, int64_t plane,
              const std::string& where) {
  try {
    const std::vector<ChannelPlace> found = find_channels(word, {}, variables, where);
    return found.size() == 1 && found.front().variable == number && found.front().plane == plane;
  } catch (const Error&) {
    return false;
  }
}

bool is_static_field(const FieldVariable& variable) {
  const bool is_once = variable.dims.empty() || variable.shape.front() == 1;
  return is_once && !static_dims(variable.shape, variable.told).empty();
}

// Whether channels of one file may be planes of both.
bool go_together(const ArrayLayout& a, const ArrayLayout& b) {
  const auto same_extent = [&](DimKind kind) { return a.shape[dim_of(a.dims, kind)] == b.shape[dim_of(b.dims, kind)]; };
  return a.num_rows() == b.num_rows() && a.times == b.times && same_extent(DimKind::kLatitude) &&
         same_extent(DimKind::kLongitude) && same_grid(a.grid, b.grid);
}

// What training would refuse an array for does not keep the others from being told of.
void say_refusal(InspectedPart& part, const std::function<void()>& tell) {
  try {
    tell();
  } catch (const Error& error) {
    part.text += inspect_line("refused", error.message());
  }
}

// As stored: "32-bit float, big-endian".
std::string type_text(const ZarrArray& array) {
  const auto bytes = c10::elementSize(array.type);
  const char* const kind = c10::isFloatingType(array.type) ? "-bit float"
                           : array.type == at::kByte       ? "-bit unsigned integer"
                                                           : "-bit integer";
  return str(8 * bytes, kind, bytes == 1 ? "" : array.is_swapped ? ", big-endian" : ", little-endian");
}

std::string storage_text(const ZarrArray& array, const ZarrChunkFiles& files) {
  static const std::map<ChunkFilter, std::string> kNames = {
      {ChunkFilter::kShuffle, "shuffle"}, {ChunkFilter::kDeflate, "deflate"}, {ChunkFilter::kZstd, "zstd"},
      {ChunkFilter::kLz4, "lz4"},         {ChunkFilter::kBlosc, "blosc"},     {ChunkFilter::kCrc32c, "crc32c"}};
  std::vector<std::string> codecs;
  std::transform(array.codecs.begin(), array.codecs.end(), std::back_inserter(codecs),
                 [](const ZarrCodec& codec) { return kNames.at(codec.filter); });
  return str("chunks (", join(array.chunk), ")", array.shard.empty() ? "" : str(" in shards (", join(array.shard), ")"),
             codecs.empty() ? "" : ", codecs " + join(codecs), ", ", bytes_text(files.bytes));
}

NamedTexts json_attributes(const ZarrJson& attributes) {
  NamedTexts texts;
  for (const auto& [name, value] : attributes.items()) {
    if (value.is_string() || value.is_number()) {
      texts.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  return texts;
}

std::string files_text(const ZarrArray& array, const ZarrChunkFiles& files) {
  const char* const unit = array.shard.empty() ? "chunk" : "shard";
  const std::string there = files.found == files.all ? "all there" : str(files.found, " of them there");
  const std::string fill = !array.fill_value ? "" : str(", fill value ", number_text(*array.fill_value, 9));
  return str(counted(static_cast<size_t>(files.all), unit), ", ", there, fill);
}

// Of a row, of chunks as long as the mean of those that are there.
ReadCost zarr_row_cost(const ArrayLayout& layout, const ZarrChunkFiles& files) {
  ReadCost cost = read_cost(layout, 0, RowBox::whole(layout));
  const double chunks_of_file =
      static_cast<double>(layout.chunks_along(0) * layout.chunks_per_row()) / static_cast<double>(files.all);
  if (files.found > 0) {
    const double bytes_of_chunk = static_cast<double>(files.bytes) / static_cast<double>(files.found) / chunks_of_file;
    cost.bytes_in_file = std::llround(bytes_of_chunk * static_cast<double>(cost.num_reads));
  }
  return cost;
}

void describe_array(const ZarrFields& store, const ZarrArray& array, InspectedVariables& variables,
                    InspectedPart& part) {
  part.text = str(shown(array.name), " (", join(array.shape), ")");
  if (!array.refused.empty()) {
    part.text += "\n" + inspect_line("refused", "cannot be read: " + array.refused);
    return;
  }
  part.text += str(", ", type_text(array), "\n");
  const ZarrChunkFiles files = array.shape.empty() ? ZarrChunkFiles() : store.chunk_files(array);
  if (!array.shape.empty()) {
    part.text += inspect_line("storage", storage_text(array, files)) + inspect_line("files", files_text(array, files));
  }
  part.text += names_text(array.dims, json_attributes(array.attributes));
  if (array.shape.empty() || num_elements(array.shape) == 0) {
    return;
  }
  if (array.shape.size() == 1) {
    if (array.shape.front() <= kMostListed) {
      part.text += table_of_values(at::tensor(store.values_of(array)), "all");
    }
    return;
  }
  ReadCost cost;
  if (array.shape.size() > 2) {
    const ArrayLayout layout = store.layout(array);
    cost = zarr_row_cost(layout, files);
    part.text += cost_line(cost, "one row", kInFiles);
    const std::string why = slow_because(layout, cost);
    part.text += why.empty() ? "" : inspect_line("slow", why);
  }
  variables.describe(array.name, cost, part);
}

}  // namespace

std::string inspect_line(const std::string& title, const std::string& text) {
  return "  " + title + ":" + std::string(11 - title.size(), ' ') + text + "\n";
}

std::string names_text(const std::vector<std::string>& dims, const NamedTexts& attributes) {
  constexpr size_t kMostText = 100;
  std::string text = join(dims, "").empty() ? "" : inspect_line("dims", shown(join(dims)));
  for (const auto& [name, value] : attributes) {
    text += inspect_line("attribute", str(shown(name), " = ", shown(value, kMostText)));
  }
  return text;
}

std::string table_of_values(const at::Tensor& values, const std::string& name) {
  std::vector<ChannelMoments> moments(1);
  add_row(values.contiguous(), {1, 1, values.numel()}, moments);
  return statistics_table(moments, {name});
}

std::string cost_line(const ReadCost& cost, const std::string& what, const std::string& where) {
  const bool is_inflated = cost.bytes_in_file != cost.bytes_needed;
  return inspect_line("reading", str(what, " of ", bytes_text(cost.bytes_wanted), " = ", cost.num_reads,
                                     cost.num_reads == 1 ? " read, " : " reads, ", fixed_text(cost.amplification(), 2),
                                     " x the bytes wanted",
                                     is_inflated ? str(" (", bytes_text(cost.bytes_in_file), " ", where,
                                                       ", inflated to ", bytes_text(cost.bytes_needed), ")")
                                                 : ""));
}

std::string channels_line(const std::vector<std::string>& words) {
  return str("  --channels ", quoted_word(shown(join(words, ","), kMostNamesText)), "\n");
}

std::string quoted_word(const std::string& word) {
  if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+:,@%") ==
      std::string::npos) {
    return word;
  }
  std::string text = "'";
  for (const char c : word) {
    text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return text + "'";
}

std::vector<std::string> words_of_channels(std::span<const FieldVariable> variables, size_t number,
                                           const std::string& where) {
  const FieldVariable& variable = variables[number];
  const int64_t planes = std::max<int64_t>({1, std::ssize(variable.levels), std::ssize(variable.channels)});
  std::vector<std::string> words;
  for (int64_t plane = 0; plane < planes && planes <= kMostPlanes; ++plane) {
    const auto i = static_cast<size_t>(plane);
    const std::string own = !variable.levels.empty()     ? str(variable.name, ":", variable.levels[i])
                            : !variable.channels.empty() ? variable.channels[i]
                                                         : variable.name;
    const std::string usual = canonical_channel(own);
    words.push_back(is_named(usual, variables, number, plane, where) ? usual
                    : is_named(own, variables, number, plane, where) ? own
                                                                     : "");
  }
  return words;
}

std::string times_text(const TimeAxis& times, int64_t num_rows) {
  if (times.kind == TimeAxis::Kind::kNone) {
    return counted(static_cast<size_t>(num_rows), "row") + ", without times";
  }
  if (times.kind == TimeAxis::Kind::kNumbers) {
    return str(num_rows, " from ", times.first, " to ", times.last, ", without units");
  }
  const bool is_usual = times.calendar.empty() || times.calendar == "standard";
  const std::string gaps =
      times.gaps.empty() ? ""
                         : str(", ", counted(times.gaps.size(), "gap"), times.gaps.size() == 1 ? " (" : " (the first ",
                               "before row ", times.gaps.front(), ")");
  return str(num_rows, " from ", time_text(times, times.first), " to ", time_text(times, times.last),
             num_rows == 1 ? "" : str(", ", number_text(times.interval / kSecondsOfHour), " hours apart"), gaps,
             is_usual ? "" : ", calendar " + times.calendar);
}

InspectedVariables::InspectedVariables(std::string path, std::vector<FieldVariable> variables, Inspect inspect)
    : path_(std::move(path)), variables_(std::move(variables)), inspect_(std::move(inspect)) {}

void InspectedVariables::describe(const std::string& name, const ReadCost& cost, InspectedPart& part) {
  const auto found = std::find_if(variables_.begin(), variables_.end(),
                                  [&](const FieldVariable& variable) { return variable.name == name; });
  if (found == variables_.end()) {
    return;
  }
  say_refusal(part, [&] {
    if (!found->dims.empty()) {
      describe_fields(static_cast<size_t>(found - variables_.begin()), cost, part);
    }
    if (is_static_field(*found)) {
      describe_static(*found, part);
    }
  });
}

void InspectedVariables::describe_fields(size_t number, const ReadCost& cost, InspectedPart& part) {
  const FieldVariable& variable = variables_[number];
  const ArrayLayout layout = inspect_(variable);
  if (!variable.levels.empty()) {
    part.text += inspect_line("levels", shown(join(variable.levels), kMostNamesText) + " hPa");
  }
  if (!layout.packing.is_identity()) {
    part.text += inspect_line("packing", packing_text(layout.packing));
  }
  part.text += inspect_line("times", times_text(layout.times, layout.num_rows()));
  if (!layout.missing.empty()) {
    part.text += inspect_line("missing", str(counted(layout.missing.size(), "time"),
                                             " by the store's own list, the first row ", layout.missing.front()));
  }
  part.text += inspect_line("grid", grid_text(layout.grid));
  require_readable(layout, str(path_, ": array '", shown(variable.name), "'"));
  std::vector<std::string> words = words_of_channels(variables_, number, path_);
  std::erase(words, "");
  if (layout.num_rows() > 0 && !words.empty()) {
    part.channels = words;
    part.dataset.clear();
    fields_.push_back({std::move(words), layout, cost});
  }
}

void InspectedVariables::describe_static(const FieldVariable& variable, InspectedPart& part) {
  for (const std::string& word : {canonical_channel(variable.name), variable.name}) {
    const ArrayLayout layout = inspect_static_fields({path_}, {word}, {}).front().layout;
    if (layout.name == variable.name) {
      part.text += inspect_line("static", shown(word));
      if (variable.dims.empty()) {
        part.text += table_of_values(read_static_values({path_, layout}), word);
      }
      statics_.push_back(word);
      return;
    }
  }
}

InspectedPart InspectedVariables::together() const {
  std::vector<size_t> channels_with;  // of each and those that go with it
  for (const Fields& first : fields_) {
    channels_with.push_back(
        std::accumulate(fields_.begin(), fields_.end(), size_t{0}, [&](size_t sum, const Fields& other) {
          return sum + (go_together(first.layout, other.layout) ? other.words.size() : 0);
        }));
  }
  const auto most =
      static_cast<size_t>(std::max_element(channels_with.begin(), channels_with.end()) - channels_with.begin());
  std::vector<std::string> words, left_out;
  ReadCost cost;
  for (const Fields& fields : fields_) {
    if (!go_together(fields_[most].layout, fields.layout)) {
      left_out.push_back(fields.layout.name);
      continue;
    }
    words.insert(words.end(), fields.words.begin(), fields.words.end());
    cost.bytes_wanted += fields.cost.bytes_wanted;
    cost.bytes_needed += fields.cost.bytes_needed;
    cost.bytes_in_file += fields.cost.bytes_in_file;
    cost.num_reads += fields.cost.num_reads;
  }
  InspectedPart part;
  if (!words.empty()) {
    part.text += str("all of it: ", counted(words.size(), "channel"), " of ",
                     counted(fields_.size() - left_out.size(), "array"), "\n");
    part.text += cost_line(cost, "one row", kInFiles);
    part.text += channels_line(words);
    part.words = std::move(words);
  }
  if (!statics_.empty()) {
    part.text += str("  --static ", quoted_word(shown(join(statics_, ","), kMostNamesText)), "\n");
  }
  if (!left_out.empty()) {
    part.text += inspect_line("left out", shown(join(left_out), kMostNamesText) + ", of other times or points");
  }
  return part;
}

std::vector<InspectedPart> describe_zarr_store(const std::string& path) {
  const ZarrFields store(path);
  InspectedVariables variables(path, store.variables(),
                               [&](const FieldVariable& variable) { return store.inspect(variable, true); });
  std::vector<InspectedPart> parts = {{str(path, ": Zarr store, ", counted(store.arrays().size(), "array"), "\n")}};
  for (const ZarrArray& array : store.arrays()) {
    InspectedPart& part = parts.emplace_back();
    say_refusal(part, [&] { describe_array(store, array, variables, part); });
  }
  parts.push_back(variables.together());
  return parts;
}

}  // namespace vit_hybrid::data
