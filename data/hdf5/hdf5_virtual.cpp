// The parts of a virtual dataset, one by one.
#include "data/hdf5/hdf5_virtual.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "data/hdf5/hdf5_open.h"
#include "data/hdf5/hdf5_scales.h"
#include "data/reading/box_runs.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

// One part of a virtual dataset.
struct VirtualPart {
  std::string file;
  std::string dataset;
  int64_t num_values = 0;  // mapped to it; -1 where there is no end
};

VirtualPart virtual_part(hid_t creation, size_t number) {
  const auto text_of = [&](auto get) {
    std::string text(static_cast<size_t>(std::max<ssize_t>(get(creation, number, nullptr, 0), 0)), '\0');
    get(creation, number, text.data(), text.size() + 1);
    return text;
  };
  const Hid mapped(H5Pget_virtual_vspace(creation, number), &H5Sclose);
  const hssize_t count = H5Sget_select_npoints(mapped.get());
  H5Eclear2(H5E_DEFAULT);
  return {text_of(&H5Pget_virtual_filename), text_of(&H5Pget_virtual_dsetname), std::max<int64_t>(count, -1)};
}

// The file as HDF5 looks for it: by its name, then beside the virtual dataset's own; empty if it is not there.
std::string found_source(const std::string& path, const std::string& name) {
  std::error_code error;
  for (const auto& candidate : {std::filesystem::path(name), std::filesystem::path(path).parent_path() / name}) {
    if (std::filesystem::exists(candidate, error)) {
      return candidate.string();
    }
  }
  return "";
}

std::string existing_source(const std::string& path, const std::string& name, const std::string& where) {
  std::string found = found_source(path, name);
  if (!found.empty()) {
    return found;
  }
  throw Error(ErrorClass::kMissingInput,
              str(where, " is virtual, and the file ", shown(name), " that it is made of is not there"),
              "its values would silently be fill values");
}

// The name with the number of a block in the place of %b.
std::string block_name(const std::string& pattern, int64_t block) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool is_escape = pattern[i] == '%' && i + 1 < pattern.size();
    name += !is_escape ? std::string(1, pattern[i]) : pattern[++i] == 'b' ? str(block) : std::string(1, pattern[i]);
  }
  return name;
}

// A dataset by its file and its name from the root, whatever ways lead to it.
using Place = std::pair<std::string, std::string>;

Place place_of(const std::string& file, const std::string& dataset) {
  std::error_code error;
  const auto canonical = std::filesystem::weakly_canonical(file, error);
  return {error ? file : canonical.string(), std::filesystem::path("/" + dataset).lexically_normal().string()};
}

// The way from a virtual dataset through others that it is made of. HDF5 holds about 30 KB in memory for each part of
// those that are open. Main thread.
class Level {
 public:
  Level(Place place, size_t num_parts, const std::string& where) : num_parts_(num_parts) {
    if (std::find(way_.begin(), way_.end(), place) != way_.end()) {
      throw Error(ErrorClass::kBadData, where + " is virtual and made of itself", "make it of datasets with values");
    }
    if (way_.size() >= kMostLevels) {
      throw Error(ErrorClass::kBadData,
                  str(where, " is the last of ", kMostLevels, " virtual datasets that are made of each other"),
                  "make the first of them of datasets with values");
    }
    if (num_parts > kMostParts - parts_on_way_) {
      throw Error(ErrorClass::kBadData,
                  str(where, " is virtual and made of ", parts_on_way_ + num_parts, " parts, more than ", kMostParts),
                  "make it of fewer and larger parts");
    }
    way_.push_back(std::move(place));
    parts_on_way_ += num_parts;
  }
  ~Level() {
    way_.pop_back();
    parts_on_way_ -= num_parts_;
    if (way_.empty()) {
      seen_.clear();
    }
  }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

  // Whether a part has not been looked at since the way began: each is once, however many parts are in it.
  static bool is_new(const std::string& file, const std::string& dataset) {
    return seen_.insert(place_of(file, dataset)).second;
  }

 private:
  static constexpr size_t kMostLevels = 8;
  static constexpr size_t kMostParts = size_t{1} << 15;
  static inline std::vector<Place> way_;
  static inline std::set<Place> seen_;
  static inline size_t parts_on_way_ = 0;

  size_t num_parts_;
};

// What a dataset that is a part lacks; Error(kBadData) where it cannot be read at all.
std::string unwritten_in(const std::string& file, const std::string& dataset) {
  if (!Level::is_new(file, dataset)) {
    return "";
  }
  const ArrayLayout layout = inspect_dataset(file, dataset);
  require_filters(layout, str(file, ": dataset '", shown(dataset), "'"));
  return layout.unwritten.empty() ? "" : str(layout.unwritten, " in ", file);
}

// A part of this file, by a pattern of names, or without an end: it is not known how many values it has. What is there
// is looked at all the same.
std::string unwritten_in_uncounted(const std::string& path, const VirtualPart& part, const std::string& where) {
  if (part.dataset.find('%') != std::string::npos) {
    throw Error(ErrorClass::kBadData,
                str(where, " is virtual and made of datasets by a pattern of names, ", shown(part.dataset)),
                "name each of them in it");
  }
  const bool is_pattern = block_name(part.file, 0) != block_name(part.file, 1);
  for (int64_t block = 0; block == 0 || is_pattern; ++block) {
    const std::string file = part.file == "." ? path : found_source(path, block_name(part.file, block));
    if (file.empty()) {
      break;  // as HDF5 does
    }
    const std::string unwritten = unwritten_in(file, part.dataset);
    if (!unwritten.empty()) {
      return unwritten;
    }
  }
  return "";
}

}  // namespace

std::string hdf5_unwritten_parts(const std::string& path, hid_t dataset, const std::string& where,
                                 const ArrayLayout& layout) {
  const Hid properties(H5Dget_create_plist(dataset), &H5Pclose);
  const hid_t creation = properties.get();
  size_t count = 0;
  H5Pget_virtual_count(creation, &count);
  const Level level(place_of(hdf5_file_name(dataset), hdf5_object_name(dataset)), count, where);
  int64_t num_missing = num_elements(layout.shape);
  bool is_countable = true;
  for (size_t i = 0; i < count; ++i) {
    const VirtualPart part = virtual_part(creation, i);
    const bool is_counted = part.file != "." && part.file.find('%') == std::string::npos && part.num_values >= 0;
    is_countable = is_countable && is_counted;
    num_missing -= std::max<int64_t>(part.num_values, 0);
    const std::string unwritten = is_counted ? unwritten_in(existing_source(path, part.file, where), part.dataset)
                                             : unwritten_in_uncounted(path, part, where);
    if (!unwritten.empty()) {
      return unwritten;
    }
  }
  return is_countable && num_missing > 0 ? str(num_missing, " values for which it names no file") : "";
}

void hdf5_require_parts(hid_t dataset, const std::string& where) {
  const Hid creation(H5Dget_create_plist(dataset), &H5Pclose);
  if (H5Pget_layout(creation.get()) == H5D_VIRTUAL) {
    const Hid space(H5Dget_space(dataset), &H5Sclose);
    ArrayLayout layout;
    layout.shape = hdf5_shape(space.get());
    layout.unwritten = hdf5_unwritten_parts(hdf5_file_name(dataset), dataset, where, layout);
    require_readable(layout, where);
  }
}

}  // namespace vit_hybrid::data
