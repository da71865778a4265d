// What reading a dataset costs by the layout of its file, and the text of `data inspect`.
#include "data/tools/inspect_files.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "data/datasets/year_files.h"
#include "data/hdf5/hdf5_layout.h"
#include "data/hdf5/hdf5_rows.h"
#include "data/reading/box_runs.h"
#include "data/reading/posix_file.h"
#include "data/reading/row_reader.h"
#include "data/tools/tool_files.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/partition.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

using Storage = Hdf5Layout::Storage;
using Shape = std::vector<int64_t>;
using Run = std::pair<int64_t, int64_t>;  // first byte in the file, number of bytes

Shape inner(const Shape& shape) {
  return {shape.begin() + 1, shape.end()};
}

int64_t item_bytes(const Hdf5Layout& layout) {
  return static_cast<int64_t>(c10::elementSize(layout.type));
}

void add_runs(const BoxPlace& place, const Shape& size, int64_t offset, int64_t item, std::vector<Run>& runs) {
  const BoxPlace dense{size, Shape(size.size(), 0)};
  for_each_run(size, place, dense,
               [&](int64_t at, int64_t, int64_t count) { runs.emplace_back(offset + at * item, count * item); });
}

// Calls visit(number of the chunk in the table, the box's part in it as a place in a chunk's row, size of the part).
template <class Visit>
void for_each_touched_chunk(const Hdf5Layout& layout, int64_t row, const RowBox& box, const Visit& visit) {
  const Shape shape = inner(layout.shape);
  const Shape chunk = inner(layout.chunk);
  Shape corner(shape.size(), 0);
  int64_t number = row / layout.chunk.front() * layout.chunks_per_row();
  for (int64_t left = layout.chunks_per_row(); left > 0; --left, ++number) {
    BoxPlace place{chunk, corner};
    Shape size = corner;
    for (size_t d = 0; d < size.size(); ++d) {
      const int64_t begin = std::max(corner[d], box.start[d]);
      const int64_t end = std::min(corner[d] + chunk[d], box.start[d] + box.size[d]);
      size[d] = std::max<int64_t>(end - begin, 0);
      place.start[d] = begin - corner[d];
    }
    if (num_elements(size) > 0) {
      visit(static_cast<size_t>(number), place, size);
    }
    for (size_t d = corner.size(); d-- > 0;) {
      corner[d] += chunk[d];
      if (corner[d] < shape[d]) {
        break;
      }
      corner[d] = 0;
    }
  }
}

int64_t count_places(std::vector<Run> runs) {
  std::sort(runs.begin(), runs.end());
  int64_t places = 0;
  int64_t end = -1;
  for (const auto& [first, bytes] : runs) {
    places += first == end ? 0 : 1;
    end = first + bytes;
  }
  return places;
}

// Only parts of chunks need be read.
void add_unfiltered(const Hdf5Layout& layout, int64_t row, const RowBox& box, ReadCost& cost) {
  const int64_t item = item_bytes(layout);
  const int64_t slice = num_elements(inner(layout.chunk)) * item;
  std::vector<Run> runs;
  for_each_touched_chunk(layout, row, box, [&](size_t number, const BoxPlace& place, const Shape& size) {
    add_runs(place, size, layout.chunk_offsets[number] + row % layout.chunk.front() * slice, item, runs);
  });
  cost.num_reads = count_places(std::move(runs));
}

// Chunks that the box touches.
int64_t num_touched_chunks(const Hdf5Layout& layout, const RowBox& box) {
  int64_t count = 1;
  for (size_t d = 0; d < box.size.size(); ++d) {
    const int64_t chunk = layout.chunk[d + 1];
    const int64_t last = box.start[d] + box.size[d] - 1;
    count *= box.size[d] == 0 ? 0 : last / chunk - box.start[d] / chunk + 1;
  }
  return count;
}

// There may be more of them than can be listed. None is taken to lie beside another.
void add_unlisted_chunks(const Hdf5Layout& layout, const RowBox& box, ReadCost& cost) {
  cost.num_reads = num_touched_chunks(layout, box);
  if (__builtin_mul_overflow(cost.num_reads, num_elements(layout.chunk) * item_bytes(layout), &cost.bytes_needed)) {
    cost.bytes_needed = std::numeric_limits<int64_t>::max();
  }
  cost.bytes_in_file = cost.bytes_needed;
}

void add_whole_chunks(const Hdf5Layout& layout, int64_t row, const RowBox& box, ReadCost& cost) {
  const int64_t chunk_bytes = num_elements(layout.chunk) * item_bytes(layout);
  cost.bytes_needed = 0;
  cost.bytes_in_file = 0;
  std::vector<Run> runs;
  for_each_touched_chunk(layout, row, box, [&](size_t number, const BoxPlace&, const Shape&) {
    cost.bytes_needed += chunk_bytes;
    cost.bytes_in_file += layout.chunk_bytes[number];
    runs.emplace_back(layout.chunk_offsets[number], layout.chunk_bytes[number]);
  });
  cost.num_reads = count_places(std::move(runs));
}

}  // namespace

ReadCost read_cost(const Hdf5Layout& layout, int64_t row, const RowBox& box) {
  VH_ASSERT(!layout.shape.empty() && box.size.size() + 1 == layout.shape.size(), "a box of a row");
  const int64_t bytes = box.num_values() * item_bytes(layout);
  ReadCost cost{bytes, bytes, bytes, 1};
  if (layout.storage == Storage::kChunked) {
    add_unfiltered(layout, row, box, cost);
  } else if (!layout.chunk.empty() && layout.chunk_bytes.empty()) {
    add_unlisted_chunks(layout, box, cost);
  } else if (!layout.chunk.empty()) {
    add_whole_chunks(layout, row, box, cost);
  } else {
    std::vector<Run> runs;
    add_runs({inner(layout.shape), box.start}, box.size, 0, item_bytes(layout), runs);
    cost.num_reads = count_places(std::move(runs));
  }
  return cost;
}

RowBox latitude_band(const Hdf5Layout& layout, int64_t band, int64_t num_bands) {
  VH_ASSERT(layout.shape.size() == 4, str("bands of ", layout.shape.size(), " dims"));
  const Range rows = Partition(layout.shape[2], num_bands).part(band);
  return {{0, rows.begin, 0}, {layout.shape[1], rows.size(), layout.shape[3]}};
}

namespace {

using Storage = Hdf5Layout::Storage;

constexpr int64_t kSmallRead = int64_t{64} << 10;       // bytes; smaller ones are bound by their number
constexpr int64_t kManyReads = 16;                      // for one sample
constexpr int64_t kMostWholeBytes = int64_t{64} << 20;  // of a dataset of one dim that is read in one go
constexpr size_t kMostAttributeText = 100;              // characters of an attribute that are shown
constexpr size_t kMostListText = 8192;                  // of the names of channels

std::string ratio_text(double ratio) {
  return fixed_text(ratio, 2);
}

std::string direct_text(const Hdf5Layout& layout) {
  switch (layout.storage) {
    case Storage::kContiguous:
      return str("yes, all values lie together from byte ", layout.offset, " on");
    case Storage::kChunked:
      return str("yes, ", layout.chunk_offsets.size(), " chunks of which the first is at byte ",
                 layout.chunk_offsets.front());
    case Storage::kFiltered:
      return str("yes, ", layout.chunk_offsets.size(), " chunks, inflated after reading");
    case Storage::kOpaque:
      break;
  }
  return str("no: ", layout.opaque_because);
}

std::string cost_text(const Hdf5Layout& layout, const std::string& what, const ReadCost& cost) {
  std::string text = str("  reading:    ", what, " of ", bytes_text(cost.bytes_wanted));
  if (layout.is_virtual) {
    return text + ": through HDF5, from the files that the dataset is made of\n";
  }
  text += str(" = ", cost.num_reads, cost.num_reads == 1 ? " read" : " reads", ", ", ratio_text(cost.amplification()),
              " x the bytes wanted");
  if (cost.bytes_in_file != cost.bytes_needed) {
    text += str(" (", bytes_text(cost.bytes_in_file), " in the file, inflated to ", bytes_text(cost.bytes_needed), ")");
  }
  return text + "\n";
}

RowBox whole_row(const Hdf5Layout& layout) {
  return {std::vector<int64_t>(layout.shape.size() - 1, 0), {layout.shape.begin() + 1, layout.shape.end()}};
}

bool is_samples(const Hdf5Description& dataset) {
  return dataset.has_numbers && dataset.shape.size() >= 3 && dataset.layout.row_bytes() > 0 &&
         dataset.layout.num_rows() > 0;
}

std::string costs_text(const Hdf5Layout& layout, int64_t bands) {
  std::string text = cost_text(layout, "one sample", read_cost(layout, 0, whole_row(layout)));
  const bool is_field = layout.shape.size() == 4 && c10::isFloatingType(layout.type);
  if (bands > 1 && is_field && bands <= layout.shape[2]) {
    text += cost_text(layout, str("latitude band 0 of ", bands), read_cost(layout, 0, latitude_band(layout, 0, bands)));
  }
  return text;
}

std::string attributes_text(const Hdf5Description& dataset) {
  std::string text;
  for (const auto& [name, value] : dataset.attributes) {
    const bool says_nothing = name == "CLASS" || name == "NAME" || name.starts_with("_Netcdf4") || name == "channels";
    if (!says_nothing) {
      text += str("  attribute:  ", shown(name), " = ", shown(value, kMostAttributeText), "\n");
    }
  }
  return text;
}

std::vector<std::string> names_of_channels(const Hdf5Description& dataset, int64_t count, const std::string& path) {
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

std::string quoted(const std::string& word) {
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

std::string repack_text(const std::string& path, const Hdf5Description& dataset, int num_ranks) {
  const std::string why =
      is_samples(dataset) ? slow_because(dataset.layout, read_cost(dataset.layout, 0, whole_row(dataset.layout))) : "";
  if (why.empty() || !dataset.layout.unwritten.empty() || !dataset.layout.missing_filters.empty()) {
    return "";
  }
  if (dataset.is_linked) {
    return str("  slow:       ", why, "; inspect that file\n");
  }
  const std::string out = (std::filesystem::path(path).parent_path() / "repacked").string();
  return str("  slow:       ", why, "; repack it with\n              ",
             num_ranks > 1 ? str("mpirun -n ", num_ranks, " ") : "", "vit_hybrid data repack ", quoted(path), " --out ",
             quoted(out), " --dataset ", quoted(dataset.name), "\n");
}

std::string dims_text(const Hdf5Description& dataset) {
  const bool has_names =
      std::any_of(dataset.dims.begin(), dataset.dims.end(), [](const std::string& name) { return !name.empty(); });
  std::string text = has_names ? str("  dims:       ", shown(join(dataset.dims)), "\n") : "";
  return dataset.channels.empty() ? text : str(text, "  channels:   ", shown(dataset.channels, kMostListText), "\n");
}

// One dim: no samples, but labels and coordinates, which are small.
std::string values_of_vector(const std::string& path, const Hdf5Description& dataset) {
  const bool is_small = dataset.has_numbers && dataset.shape.size() == 1 && dataset.layout.num_rows() > 0 &&
                        dataset.layout.num_rows() * dataset.layout.row_bytes() <= kMostWholeBytes;
  if (!is_small) {
    return "";
  }
  std::vector<ChannelMoments> moments(1);
  add_row(read_whole_dataset(path, dataset.name), {1, 1, dataset.layout.num_rows()}, moments);
  return statistics_table(moments, {"all"});
}

struct Sampled {
  std::string dataset;
  std::string text;  // what stands before its values
  std::vector<std::string> channels;
};

// Rank 0's text of a file, cut where values follow that all ranks look at together.
struct FileText {
  std::vector<Sampled> parts;
  std::string end;
};

FileText describe_file(const std::string& path, const InspectOptions& options, int num_ranks) {
  const auto datasets = describe_hdf5_file(path);
  FileText file;
  file.end = str(path, ": ", bytes_text(PosixFile(path, PosixFile::Access::kRead).size()), "\n");
  for (const Hdf5Description& dataset : datasets) {
    file.end += describe_dataset(dataset, options.bands) + repack_text(path, dataset, num_ranks);
    if (!dataset.layout.missing_filters.empty()) {
      file.end +=
          str("  values:     cannot be read: this HDF5 lacks the filter ", dataset.layout.missing_filters, "\n");
    } else if (!dataset.layout.unwritten.empty()) {
      file.end += str("  values:     never written: ", dataset.layout.unwritten, "\n");
    } else if (is_samples(dataset)) {
      const int64_t count = channel_places(dataset.shape, dataset.layout.type).channels;
      file.parts.push_back({dataset.name, std::move(file.end), names_of_channels(dataset, count, path)});
      file.end.clear();
    } else {
      file.end += values_of_vector(path, dataset);
    }
  }
  return file;
}

std::string values_text(const comm::MpiGroup& group, const std::string& path, const std::string& dataset,
                        const std::vector<std::string>& channels, int64_t sample) {
  const RowSource source(group, {path}, dataset, "", IoMode::kAuto);
  const RowSelection rows = RowSelection::of(source, sample);
  const RowStatistics statistics = row_statistics(group, source, rows, {});
  return str("  values:     ", rows.count == rows.total ? "all" : str(rows.count, " of"), " ", rows.total, " rows\n",
             statistics_table(statistics.channels, channels));
}

}  // namespace

std::string slow_because(const Hdf5Layout& layout, const ReadCost& cost) {
  if (layout.is_virtual) {
    return "virtual storage is read by one thread through HDF5";
  }
  if (layout.storage == Storage::kOpaque) {
    return str(layout.opaque_because, ", which only HDF5 reads, on one thread");
  }
  if (cost.amplification() > 1.25) {
    return str("a sample needs ", ratio_text(cost.amplification()), " times its bytes, because chunks (",
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

std::string describe_dataset(const Hdf5Description& dataset, int64_t bands) {
  std::string text = str(shown(dataset.name), " (", join(dataset.shape), "), ", dataset.type, "\n");
  text += str("  storage:    ", dataset.storage, dataset.filters.empty() ? "" : ", filters " + join(dataset.filters),
              ", ", bytes_text(dataset.stored_bytes), "\n");
  if (!dataset.has_numbers) {
    return text;
  }
  text += str("  direct:     ", direct_text(dataset.layout), "\n", dims_text(dataset), attributes_text(dataset));
  return is_samples(dataset) ? text + costs_text(dataset.layout, bands) : text;
}

std::string statistics_table(const std::vector<ChannelMoments>& channels, const std::vector<std::string>& names) {
  const std::string heading = "channel";
  size_t width = heading.size();
  std::vector<std::string> titles;
  for (const std::string& name : names) {
    titles.push_back(shown(name));
    width = std::max(width, titles.back().size());
  }
  const auto padded = [&](const std::string& name) { return "    " + name + std::string(width - name.size(), ' '); };
  char line[160];
  std::snprintf(line, sizeof line, " %14s %14s %14s %14s %10s %10s\n", "min", "max", "mean", "std", "NaN", "infinite");
  std::string out = padded(heading) + line;
  for (size_t c = 0; c < channels.size(); ++c) {
    const ChannelMoments& m = channels[c];
    const double none = std::numeric_limits<double>::quiet_NaN();
    const bool has_any = m.count > 0;
    std::snprintf(line, sizeof line, " %14.7g %14.7g %14.7g %14.7g %10lld %10lld\n", has_any ? m.min : none,
                  has_any ? m.max : none, has_any ? m.mean : none, has_any ? m.deviation() : none,
                  static_cast<long long>(m.num_nan), static_cast<long long>(m.num_infinite));
    out += padded(titles[c]) + line;
  }
  return out;
}

void inspect_files(const comm::MpiGroup& group, const InspectOptions& options,
                   const std::function<void(const std::string&)>& print) {
  for (const std::string& path : list_hdf5_inputs(group, options.inputs)) {
    FileText file;
    comm::agreed_on_rank_0(group, [&] { file = describe_file(path, options, group.size()); });
    const int64_t num_parts = group.max(std::ssize(file.parts));
    file.parts.resize(static_cast<size_t>(num_parts));
    for (Sampled& part : file.parts) {
      part.dataset = group.broadcast(part.dataset, 0);
      const auto channels = broadcast_lines(group, part.channels);
      const std::string values = values_text(group, path, part.dataset, channels, options.sample);
      if (group.rank() == 0) {
        print(part.text + values);
      }
    }
    if (group.rank() == 0 && !file.end.empty()) {
      print(file.end);
    }
  }
}

}  // namespace vit_hybrid::data
