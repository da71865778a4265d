// The folder that becomes a store, and what it may replace.
#include "src/infer/forecast_store.h"

#include <fcntl.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>
#include <variant>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kKindOfStore = "forecast_of";  // an attribute of all that is written here, and of nothing else

bool is_forecast_store(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 26;
  const std::string metadata = path + "/" + data::kZarrMetadata;
  std::error_code ignored;
  if (fs::is_symlink(path, ignored) || !fs::is_regular_file(metadata, ignored)) {
    return false;
  }
  try {
    const data::ZarrJson root = data::parse_zarr_json(read_regular_file(metadata, kMostBytes), metadata);
    const auto attributes = root.find("attributes");
    return attributes != root.end() && attributes->is_object() && attributes->contains(kKindOfStore);
  } catch (const Error&) {
    return false;
  }
}

// A channel may be called as another array is, or what is no name of a folder: names are the data's, or a checkpoint's.
void require_names(const std::vector<data::ZarrArray>& arrays) {
  std::set<std::string> names;
  for (const data::ZarrArray& array : arrays) {
    const bool is_plain = !array.name.empty() && array.name.find('/') == std::string::npos &&
                          !array.name.starts_with('.') && !array.name.starts_with("__") &&
                          array.name != data::kZarrMetadata;
    const bool is_new = names.insert(array.name).second;
    if (!is_plain || !is_new) {
      throw Error(ErrorClass::kBadData,
                  str("a store cannot have ", is_plain ? "two arrays '" : "an array '", shown(array.name), "'"),
                  "give --out a name that ends with .nc or .h5, whose channels are values of a coordinate");
    }
  }
}

}  // namespace

bool is_store_name(const std::string& path) {
  return path.ends_with(".zarr");
}

void refuse_existing_store(const std::string& path, bool overwrite) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(path, ignored))) {
    return;
  }
  if (!is_forecast_store(path)) {
    throw Error(ErrorClass::kCannotCreate, str("--out is '", path, "', which is there and is no store of a forecast"),
                "give another name: nothing else is replaced");
  }
  if (!overwrite) {
    throw Error(ErrorClass::kCannotCreate, str("'", path, "' is there already"),
                "give --overwrite to replace it, or another --out");
  }
  if (const std::string name = data::foreign_entry(data::read_zarr_store(path).arrays, path); !name.empty()) {
    throw Error(ErrorClass::kCannotCreate, str("the store ", path, " also has ", shown(name), ", which would be lost"),
                "move it away, remove the store, or give another --out");
  }
}

data::ZarrJson zarr_attributes(const data::Hdf5Attributes& attributes) {
  data::ZarrJson json = data::ZarrJson::object();
  for (const auto& [name, value] : attributes) {
    std::visit([&, key = name](const auto& known) { json[key] = known; }, value);
  }
  return json;
}

ForecastStore::ForecastStore(const comm::MpiGroup& self, std::string path, std::vector<data::ZarrArray> arrays,
                             const data::Hdf5Attributes& attributes)
    : path_(std::move(path)), temporary_(temporary_name(path_)) {
  require_names(arrays);
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
  data::ZarrJson json = zarr_attributes(attributes);
  json[kKindOfStore] = "vit_hybrid";
  writer_.emplace(self, temporary_, std::move(arrays), std::move(json));
}

ForecastStore::~ForecastStore() {
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

void ForecastStore::finish(bool overwrite) {
  writer_->finish();
  refuse_existing_store(path_, overwrite);
  const std::string old = temporary_ + ".old";
  std::error_code error, ignored;
  if (overwrite && fs::exists(path_, ignored)) {
    if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) {
      return;  // the old one goes with the temporary name, in the destructor
    }
    fs::rename(path_, old, error);  // a file system without exchanges
  }
  if (!error) {
    fs::rename(temporary_, path_, error);  // fails where something came there meanwhile
  }
  if (error) {
    fs::rename(old, path_, ignored);
    throw Error(ErrorClass::kIo, str("cannot rename ", temporary_, " to ", path_, ": ", error.message()));
  }
  fs::remove_all(old, ignored);
}

}  // namespace vit_hybrid::train
