// What reading a dataset costs by the layout of its file, and the text of `data inspect`.
#include "data/tools/inspect_files.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <utility>

#include "data/datasets/year_files.h"
#include "data/hdf5/hdf5_layout.h"
#include "data/hdf5/hdf5_rows.h"
#include "data/hdf5/hdf5_tree.h"
#include "data/reading/box_runs.h"
#include "data/reading/chunk_rows.h"
#include "data/reading/posix_file.h"
#include "data/tools/inspect_variables.h"
#include "data/tools/tool_files.h"
#include "data/zarr/zarr_metadata.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/partition.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

using Storage = ArrayLayout::Storage;
using Shape = std::vector<int64_t>;

constexpr int64_t kSmallRead = int64_t{64} << 10;  // bytes; smaller ones are bound by their number
constexpr int64_t kManyReads = 16;                 // for one sample

// That the box has a part of.
int64_t num_chunks(const ArrayLayout& layout, const RowBox& box) {
  int64_t count = 1;
  for (size_t d = 0; d < box.size.size(); ++d) {
    const int64_t chunk = layout.chunk[d + 1], last = box.start[d] + box.size[d] - 1;
    count *= box.size[d] == 0 ? 0 : last / chunk - box.start[d] / chunk + 1;
  }
  return count;
}

std::string direct_text(const ArrayLayout& layout) {
  if (layout.storage == Storage::kOpaque) {
    return str("no: ", layout.opaque_because);
  }
  if (layout.storage == Storage::kContiguous) {
    return str("yes, all values lie together from byte ", layout.offset, " on");
  }
  const bool is_filtered = layout.storage == Storage::kFiltered;
  return str("yes, ", layout.chunk_offsets.size(), " chunks", is_filtered ? ", inflated after reading" : "");
}

std::string cost_text(const ArrayLayout& layout, const std::string& what, const ReadCost& cost) {
  return !layout.is_virtual
             ? cost_line(cost, what)
             : inspect_line("reading", str(what, " of ", bytes_text(cost.bytes_wanted),
                                           ": through HDF5, from the files that the dataset is made of"));
}

// The text of a dataset but for what samples cost, and values.
std::string description_text(const Hdf5Description& dataset) {
  std::string text = str(shown(dataset.name), " (", join(dataset.shape), "), ", dataset.type, "\n");
  text +=
      inspect_line("storage", str(dataset.storage, dataset.filters.empty() ? "" : ", filters " + join(dataset.filters),
                                  ", ", bytes_text(dataset.stored_bytes)));
  if (!dataset.has_numbers) {
    return text;
  }
  text += inspect_line("direct", direct_text(dataset.layout));
  if (!dataset.channels.empty()) {
    text += inspect_line("channels", shown(dataset.channels, kMostNamesText));
  }
  NamedTexts telling = dataset.attributes;
  std::erase_if(telling, [](const auto& attribute) {
    const std::string& name = attribute.first;
    return name == "CLASS" || name == "NAME" || name.starts_with("_Netcdf4") || name == "channels";
  });
  return text + names_text(dataset.dims, telling);
}

// What one sample costs to read and, where that is much, the command that makes it less.
std::string sample_text(const std::string& path, const Hdf5Description& dataset, const ReadCost& cost, int64_t bands,
                        int num_ranks) {
  const ArrayLayout& layout = dataset.layout;
  std::string text = cost_text(layout, "one sample", cost);
  if (bands > 1 && layout.shape.size() == 4 && c10::isFloatingType(layout.type) && bands <= layout.shape[2]) {
    text += cost_text(layout, str("latitude band 0 of ", bands), read_cost(layout, 0, latitude_band(layout, 0, bands)));
  }
  const bool is_readable = layout.unwritten.empty() && layout.missing_filters.empty();
  const std::string why = is_readable ? slow_because(layout, cost) : "";
  if (why.empty() || dataset.is_linked) {
    return why.empty() ? text : text + inspect_line("slow", why + "; inspect that file");
  }
  const std::string out = (std::filesystem::path(path).parent_path() / "repacked").string();
  return text + inspect_line("slow", str(why, "; repack it with\n              ",
                                         num_ranks > 1 ? str("mpirun -n ", num_ranks, " ") : "",
                                         "vit_hybrid data repack ", quoted_word(path), " --out ", quoted_word(out),
                                         " --dataset ", quoted_word(dataset.name)));
}

std::vector<std::string> names_of_channels(const Hdf5Description& dataset, const std::string& path) {
  const int64_t count = channel_places(dataset.shape, dataset.layout.type).channels;
  if (dataset.shape.size() == 4 && dataset.shape[1] == count) {
    // Names of another number belong to another dataset of the file.
    const auto num_names = std::count(dataset.channels.begin(), dataset.channels.end(), ',') + 1;
    return channel_names(count, num_names == count ? dataset.channels : "", path);
  }
  if (count == 3) {
    return {"red", "green", "blue"};
  }
  return count == 1 ? std::vector<std::string>{"all"} : channel_names(count, "", path);
}

// Of the variables of a NetCDF-4 file, by name; of a file of one dataset of fields nothing more is to be told.
InspectedVariables variables_by_name(const std::string& path) {
  std::vector<FieldVariable> variables;
  if (!has_hdf5_object(path, FieldQuery().dataset)) {
    variables = hdf5_field_variables(path);
  }
  return {path, std::move(variables),
          [path](const FieldVariable& variable) { return inspect_hdf5_variable(path, variable, false); }};
}

// On rank 0.
std::vector<InspectedPart> describe_file(const std::string& path, const InspectOptions& options, int num_ranks) {
  const auto datasets = describe_hdf5_file(path);
  InspectedVariables variables = variables_by_name(path);
  std::vector<InspectedPart> parts = {{str(path, ": ", bytes_text(std::filesystem::file_size(path)), "\n")}};
  for (const Hdf5Description& dataset : datasets) {
    const ArrayLayout& layout = dataset.layout;
    const bool has_rows = dataset.has_numbers && layout.num_rows() > 0 && layout.row_bytes() > 0;
    const bool is_samples = has_rows && dataset.shape.size() >= 3;
    const ReadCost cost = is_samples ? read_cost(layout, 0, RowBox::whole(layout)) : ReadCost();
    InspectedPart& part = parts.emplace_back(InspectedPart{description_text(dataset)});
    if (is_samples) {
      part.text += sample_text(path, dataset, cost, options.bands, num_ranks);
    }
    if (!layout.missing_filters.empty()) {
      part.text += inspect_line("values", "cannot be read: this HDF5 lacks the filter " + layout.missing_filters);
    } else if (!layout.unwritten.empty()) {
      part.text += inspect_line("values", "never written: " + layout.unwritten);
    } else if (has_rows && dataset.shape.size() == 1) {
      part.text +=
          layout.num_rows() > kMostListed ? "" : table_of_values(read_whole_dataset(path, dataset.name), "all");
    } else if (has_rows) {
      if (is_samples) {
        part.dataset = dataset.name;
        part.channels = names_of_channels(dataset, path);
      }
      variables.describe(dataset.name, cost, part);
    }
  }
  parts.push_back(variables.together());
  return parts;
}

std::string values_text(const comm::MpiGroup& group, const std::string& path, const InspectedPart& part,
                        int64_t sample) {
  const RowSource source =
      part.dataset.empty() ? RowSource(group, {path}, FieldQuery{.channels = join(part.channels, ",")}, IoMode::kAuto)
                           : RowSource(group, {path}, part.dataset, "", IoMode::kAuto);
  const RowSelection rows = RowSelection::of(source, sample);
  const RowStatistics statistics = row_statistics(group, source, rows, {});
  return inspect_line("values",
                      str(rows.count == rows.total ? "all" : str(rows.count, " of"), " ", rows.total, " rows")) +
         statistics_table(statistics.channels, part.channels);
}

// What files of one folder have for training.
struct FoundFields {
  bool has_dataset = false;             // that of states
  std::vector<std::string> words = {};  // of variables, each once; on rank 0
};

void inspect_file(const comm::MpiGroup& group, const std::string& path, const InspectOptions& options,
                  const std::function<void(const std::string&)>& print, FoundFields& found) {
  std::vector<InspectedPart> parts;
  comm::agreed_on_rank_0(group, [&] {
    parts = is_zarr_store(path) ? describe_zarr_store(path) : describe_file(path, options, group.size());
  });
  parts.resize(static_cast<size_t>(group.max(std::ssize(parts))));
  for (InspectedPart& part : parts) {
    part.dataset = group.broadcast(part.dataset, 0);
    part.channels = group.broadcast(part.channels, 0);
    if (!part.channels.empty()) {
      part.text += values_text(group, path, part, options.all ? 0 : options.sample);
    }
    if (group.rank() == 0 && !part.text.empty()) {
      print(part.text);
    }
    found.has_dataset |= part.dataset == FieldQuery().dataset;
    std::copy_if(part.words.begin(), part.words.end(), std::back_inserter(found.words), [&](const std::string& word) {
      return std::find(found.words.begin(), found.words.end(), word) == found.words.end();
    });
  }
}

// The files as training takes them, joined by dates and by variables.
std::string together_text(const comm::MpiGroup& group, const std::string& folder, const std::vector<std::string>& paths,
                          const std::vector<std::string>& words) {
  std::string text = str(folder, ": ", counted(paths.size(), "file"), " together\n");
  try {
    const RowSource source(group, paths, FieldQuery{.channels = join(words, ",")}, IoMode::kAuto);
    const std::vector<Range> runs = comm::agreed(group, [&] {
      require_alike(source.files());
      return time_runs(source.files());
    });
    TimeAxis times = source.files().front().layout.times;
    times.last = source.files().back().layout.times.last;
    times.interval = comm::agreed(group, [&] { return common_interval(source.files()); });
    times.gaps.clear();
    std::transform(runs.begin() + (runs.empty() ? 0 : 1), runs.end(), std::back_inserter(times.gaps),
                   [](const Range& run) { return run.begin; });
    text += inspect_line("times", times_text(times, num_rows(runs)));
    text += words.empty() ? "" : channels_line(words);
  } catch (const Error& error) {
    text += inspect_line("refused", error.message());
  }
  return text;
}

}  // namespace

ReadCost read_cost(const ArrayLayout& layout, int64_t row, const RowBox& box) {
  VH_ASSERT(!layout.shape.empty() && box.size.size() + 1 == layout.shape.size(), "a box of a row");
  const auto item = static_cast<int64_t>(c10::elementSize(layout.type));
  const int64_t chunk_bytes = num_elements(layout.chunk) * item;
  const bool is_whole = !layout.chunk.empty() && layout.storage != Storage::kChunked;
  ReadCost cost;
  cost.bytes_wanted = cost.bytes_needed = box.num_values() * item;
  if (is_whole && __builtin_mul_overflow(num_chunks(layout, box), chunk_bytes, &cost.bytes_needed)) {
    cost.bytes_needed = std::numeric_limits<int64_t>::max();
  }
  if (is_whole && layout.chunk_bytes.empty()) {  // there may be more than can be listed; none is beside another
    return {cost.bytes_wanted, cost.bytes_needed, cost.bytes_needed, num_chunks(layout, box)};
  }
  std::vector<std::pair<int64_t, int64_t>> runs;  // first byte in the file, number of bytes
  const auto add_runs = [&](const Shape& size, const BoxPlace& place, int64_t offset) {
    for_each_run(size, place, {size, Shape(size.size(), 0)},
                 [&](int64_t at, int64_t, int64_t count) { runs.emplace_back(offset + at * item, count * item); });
  };
  if (layout.chunk.empty()) {
    add_runs(box.size, {{layout.shape.begin() + 1, layout.shape.end()}, box.start}, 0);
  } else {
    for_each_chunk(layout, row, box, [&](size_t number, const ChunkOverlap& part) {
      const int64_t offset = layout.chunk_offsets[number], rows = layout.chunk.front();
      if (is_whole) {
        runs.emplace_back(offset, layout.chunk_bytes[number]);
      } else {
        add_runs(part.size, part.in_chunk, offset + row % rows * (chunk_bytes / rows));
      }
    });
  }
  std::sort(runs.begin(), runs.end());
  int64_t end = -1;
  for (const auto& [first, bytes] : runs) {
    cost.num_reads += first == end ? 0 : 1;
    cost.bytes_in_file += bytes;
    end = first + bytes;
  }
  return cost;
}

RowBox latitude_band(const ArrayLayout& layout, int64_t band, int64_t num_bands) {
  VH_ASSERT(layout.shape.size() == 4, str("bands of ", layout.shape.size(), " dims"));
  const Range rows = Partition(layout.shape[2], num_bands).part(band);
  return {{0, rows.begin, 0}, {layout.shape[1], rows.size(), layout.shape[3]}};
}

std::string slow_because(const ArrayLayout& layout, const ReadCost& cost) {
  if (layout.is_virtual) {
    return "virtual storage is read by one thread through HDF5";
  }
  if (layout.storage == Storage::kOpaque) {
    return str(layout.opaque_because, ", which only HDF5 reads, on one thread");
  }
  if (cost.amplification() > 1.25) {
    return str("a sample needs ", fixed_text(cost.amplification(), 2), " times its bytes, because chunks (",
               join(layout.chunk), ") are filtered whole");
  }
  if (layout.storage == Storage::kFiltered) {
    return "every read has to be inflated";
  }
  if (cost.num_reads > kManyReads && cost.bytes_wanted / cost.num_reads < kSmallRead) {
    return str("a sample is ", cost.num_reads, " reads of ", cost.bytes_wanted / cost.num_reads, " bytes");
  }
  return "";
}

std::string statistics_table(const std::vector<ChannelMoments>& channels, const std::vector<std::string>& names) {
  std::vector<std::string> titles = {"channel"};
  std::transform(names.begin(), names.end(), std::back_inserter(titles), [](const auto& name) { return shown(name); });
  const auto longer = [](const std::string& a, const std::string& b) { return a.size() < b.size(); };
  const size_t width = std::max_element(titles.begin(), titles.end(), longer)->size();
  const auto padded = [&](const std::string& name) { return "    " + name + std::string(width - name.size(), ' '); };
  char text[160];
  std::snprintf(text, sizeof text, " %14s %14s %14s %14s %10s %10s\n", "min", "max", "mean", "std", "NaN", "infinite");
  std::string out = padded(titles[0]) + text;
  for (size_t c = 0; c < channels.size(); ++c) {
    const ChannelMoments& m = channels[c];
    const double none = std::numeric_limits<double>::quiet_NaN();
    const bool has_any = m.count > 0;
    std::snprintf(text, sizeof text, " %14.7g %14.7g %14.7g %14.7g %10lld %10lld\n", has_any ? m.min : none,
                  has_any ? m.max : none, has_any ? m.mean : none, has_any ? m.deviation() : none,
                  static_cast<long long>(m.num_nan), static_cast<long long>(m.num_infinite));
    out += padded(titles[c + 1]) + text;
  }
  return out;
}

void inspect_files(const comm::MpiGroup& group, const InspectOptions& options,
                   const std::function<void(const std::string&)>& print) {
  // What is not there is refused before anything is told.
  const size_t num_files = list_weather_inputs(group, options.inputs).size();
  const auto print_once = [&](const std::string& text) {
    if (group.rank() == 0) {
      print(text);
    }
  };
  std::vector<std::string> refused;
  for (const std::string& input : options.inputs) {
    const std::vector<std::string> paths = list_weather_inputs(group, {input});
    FoundFields found;
    for (const std::string& path : paths) {
      try {
        inspect_file(group, path, options, print, found);
      } catch (const comm::AgreedError& error) {
        if (num_files == 1 || error.error_class() != ErrorClass::kBadData) {
          throw;
        }
        refused.push_back(path);
        print_once(str(path, ": refused: ", error.what(), "\n"));
      }
    }
    found.words = group.broadcast(found.words, 0);
    if (paths.size() > 1 && (found.has_dataset || !found.words.empty())) {
      print_once(together_text(group, input, paths, found.words));
    }
  }
  if (!refused.empty()) {
    const Error error(ErrorClass::kBadData,
                      str("of ", counted(num_files, "file"), " ", refused.size(), " cannot be read: ", refused.front(),
                          refused.size() == 1 ? "" : " and others"),
                      "the lines with 'refused' above say why");
    throw comm::AgreedError(error, "", group.rank() == 0);
  }
}

}  // namespace vit_hybrid::data
