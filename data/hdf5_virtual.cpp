// The parts of a virtual dataset, one by one.
#include "data/hdf5_virtual.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "data/box_runs.h"
#include "src/base/error.h"
#include "src/base/text.h"

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

// The file as HDF5 looks for it: by its name, then beside the virtual dataset's own.
std::string existing_source(const std::string& path, const std::string& name, const std::string& where) {
  std::error_code error;
  for (const auto& candidate : {std::filesystem::path(name), std::filesystem::path(path).parent_path() / name}) {
    if (std::filesystem::exists(candidate, error)) {
      return candidate.string();
    }
  }
  throw Error(ErrorClass::kMissingInput,
              str(where, " is virtual, and the file ", name, " that it is made of is not there"),
              "its values would silently be fill values");
}

}  // namespace

std::string hdf5_unwritten_parts(const std::string& path, hid_t creation, const std::string& where,
                                 const Hdf5Layout& layout) {
  size_t count = 0;
  H5Pget_virtual_count(creation, &count);
  int64_t num_missing = num_elements(layout.shape);
  bool is_countable = true;
  for (size_t i = 0; i < count; ++i) {
    const VirtualPart part = virtual_part(creation, i);
    if (part.file == "." || part.file.find('%') != std::string::npos || part.num_values < 0) {
      is_countable = false;  // in this file, by a pattern, without an end
      continue;
    }
    num_missing -= part.num_values;
    const std::string source = existing_source(path, part.file, where);
    const std::string unwritten = inspect_dataset(source, part.dataset).unwritten;
    if (!unwritten.empty()) {
      return str(unwritten, " in ", source);
    }
  }
  return is_countable && num_missing > 0 ? str(num_missing, " values for which it names no file") : "";
}

}  // namespace vit_hybrid::data
