// What handles say of types and shapes; property lists of parallel HDF5, and files opened and created with them.
#include "data/hdf5/hdf5_open.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string_view>
#include <vector>

#include "data/hdf5/hdf5_attributes.h"
#include "data/reading/box_runs.h"
#include "data/reading/posix_file.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

constexpr size_t kMostReasonBytes = 600;  // it may hold a name of the file's

// Called for the innermost entry first; keeps that one.
herr_t keep_innermost(unsigned n, const H5E_error2_t* entry, void* text) {
  if (n == 0 && entry->desc != nullptr) {
    *static_cast<std::string*>(text) = entry->desc;
  }
  return 0;
}

herr_t note_filter(unsigned /*n*/, const H5E_error2_t* entry, void* is_filter) {
  *static_cast<bool*>(is_filter) |= entry->maj_num == H5E_PLINE;
  return 0;
}

// The smallest signed type that holds the values (a byte may be unsigned).
std::optional<at::ScalarType> integer_type(size_t bytes, bool is_signed) {
  switch (bytes) {
    case 1:
      return is_signed ? at::kChar : at::kByte;
    case 2:
      return is_signed ? at::kShort : at::kInt;
    case 4:
      return is_signed ? at::kInt : at::kLong;
    case 8:
      return at::kLong;
    default:
      return std::nullopt;
  }
}

// A little-endian floating-point type of 2 bytes: a sign, an exponent of `exponent_bits`, and the fraction.
hid_t make_half_type(size_t exponent_bits) {
  const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  const size_t fraction_bits = 15 - exponent_bits;
  H5Tset_fields(type, 15, fraction_bits, exponent_bits, 0, fraction_bits);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, (size_t{1} << (exponent_bits - 1)) - 1);
  return type;
}

// IEEE 754 binary16, and the upper half of binary32. They live as long as the program: HDF5 has no names for them.
hid_t half_type(at::ScalarType type) {
  static const hid_t half = make_half_type(5);
  static const hid_t bfloat16 = make_half_type(8);
  return type == at::kHalf ? half : bfloat16;
}

// The type that a stored floating-point type is held in.
at::ScalarType float_type(hid_t type) {
  if (H5Tget_size(type) != 2) {
    return H5Tget_size(type) <= 4 ? at::kFloat : at::kDouble;
  }
  for (const at::ScalarType known : {at::kHalf, at::kBFloat16}) {
    const Hid same_order(H5Tcopy(half_type(known)), &H5Tclose);
    H5Tset_order(same_order.get(), H5Tget_order(type));
    if (H5Tequal(type, same_order.get()) > 0) {
      return known;
    }
  }
  return at::kFloat;
}

}  // namespace

void hdf5_initialize() {
  static const bool done = [] {
    ::setenv("HDF5_USE_FILE_LOCKING", "FALSE", /*overwrite=*/0);
    H5dont_atexit();
    H5open();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    return true;
  }();
  static_cast<void>(done);
}

std::string hdf5_reason() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, &keep_innermost, &text);
  H5Eclear2(H5E_DEFAULT);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.empty() ? "HDF5 gives no reason" : shown(text, kMostReasonBytes);
}

Hid hdf5_own(hid_t id, Hid::Close close, ErrorClass error_class, const std::string& what) {
  if (id < 0) {
    throw Error(error_class, str("cannot ", what, ": ", hdf5_reason()));
  }
  return {id, close};
}

void hdf5_check(herr_t status, ErrorClass error_class, const std::string& what) {
  if (status < 0) {
    bool is_filter = false;  // what is stored cannot be decoded
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, &note_filter, &is_filter);
    const bool is_damaged = is_filter && error_class == ErrorClass::kIo;
    throw Error(is_damaged ? ErrorClass::kBadData : error_class, str("cannot ", what, ": ", hdf5_reason()),
                is_damaged ? "the file is damaged: copy or make it again" : "");
  }
}

hid_t hdf5_memory_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return H5T_NATIVE_FLOAT;
    case at::kDouble:
      return H5T_NATIVE_DOUBLE;
    case at::kHalf:
    case at::kBFloat16:
      return half_type(type);
    case at::kByte:
      return H5T_NATIVE_UINT8;
    case at::kChar:
      return H5T_NATIVE_INT8;
    case at::kShort:
      return H5T_NATIVE_INT16;
    case at::kInt:
      return H5T_NATIVE_INT32;
    case at::kLong:
      return H5T_NATIVE_INT64;
    default:
      break;
  }
  VH_ASSERT(false, str("no HDF5 type for ", c10::toString(type)));
}

std::optional<StoredType> hdf5_stored_type(hid_t type) {
  std::optional<at::ScalarType> held;
  const size_t bytes = H5Tget_size(type);
  if (H5Tget_class(type) == H5T_FLOAT) {
    held = float_type(type);
  } else if (H5Tget_class(type) == H5T_INTEGER) {
    held = integer_type(bytes, H5Tget_sign(type) != H5T_SGN_NONE);
  }
  if (!held) {
    return std::nullopt;
  }
  return StoredType{*held, H5Tequal(type, hdf5_memory_type(*held)) > 0};
}

std::string hdf5_type_name(hid_t type) {
  const size_t bits = 8 * H5Tget_size(type);
  switch (H5Tget_class(type)) {
    case H5T_FLOAT:
      return float_type(type) == at::kBFloat16 ? "bfloat16" : str(bits, "-bit float");
    case H5T_INTEGER:
      return str(bits, H5Tget_sign(type) == H5T_SGN_NONE ? "-bit unsigned integer" : "-bit integer");
    case H5T_STRING:
      return "string";
    case H5T_COMPOUND:
      return "compound";
    default:
      return "a type that is no number";
  }
}

std::vector<Hdf5Filter> hdf5_filters(hid_t creation) {
  std::vector<Hdf5Filter> filters;
  for (int i = 0; i < H5Pget_nfilters(creation); ++i) {
    char name[64] = {};
    unsigned flags = 0;
    unsigned parameters[8] = {};
    size_t num_parameters = std::size(parameters);
    const H5Z_filter_t id = H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &num_parameters, parameters,
                                           sizeof(name), name, nullptr);
    const bool is_szip = id == H5Z_FILTER_SZIP;  // files name those only that are not HDF5's own
    filters.push_back({id, name[0] != '\0' ? shown(name) : is_szip ? "szip" : "without a name", parameters[0]});
  }
  return filters;
}

int64_t hdf5_value_bytes(const std::vector<int64_t>& shape, at::ScalarType type) {
  return bytes_of_shape(shape, static_cast<int64_t>(c10::elementSize(type))).value_or(-1);
}

std::vector<int64_t> hdf5_shape(hid_t space) {
  const int rank = H5Sget_simple_extent_ndims(space);
  std::vector<hsize_t> extents(static_cast<size_t>(std::max(rank, 0)));
  H5Sget_simple_extent_dims(space, extents.data(), nullptr);
  return {extents.begin(), extents.end()};
}

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostPathBytes = 4097;
constexpr size_t kMostShownPath = 2000;
constexpr size_t kMostHintedNames = 12;  // in a hint
// One time of 100 channels of 721 x 1440 has 396 MiB.
constexpr uint64_t kMostFilteredChunkBytes = uint64_t{1} << 29;

herr_t note_dataset_name(hid_t group, const char* name, const H5L_info_t*, void* names) {
  const Hid object(H5Oopen(group, name, H5P_DEFAULT), &H5Oclose);
  if (object && H5Iget_type(object.get()) == H5I_DATASET) {
    static_cast<std::vector<std::string>*>(names)->push_back(shown(name));
  }
  return 0;
}

std::string datasets_hint(hid_t file) {
  std::vector<std::string> names;
  H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, &note_dataset_name, &names);
  H5Eclear2(H5E_DEFAULT);
  const size_t more = names.size() - std::min(names.size(), kMostHintedNames);
  names.resize(names.size() - more);
  return names.empty() ? "there is no dataset in it"
                       : str("datasets in it: ", join(names), more == 0 ? "" : str(" and ", more, " more"));
}

// Error(kBadData) for a file of another format that the field has, by its first bytes.
void refuse_other_formats(const std::string& path) {
  const PosixFile file(path, PosixFile::Access::kRead);
  std::array<char, 4> start{};
  if (file.size() < static_cast<int64_t>(start.size())) {
    return;
  }
  file.read(0, start.data(), start.size());
  if (std::string_view(start.data(), 3) == "CDF" && (start[3] == 1 || start[3] == 2 || start[3] == 5)) {
    throw Error(ErrorClass::kBadData, str(path, " is a netCDF-3 (classic) file, not HDF5"),
                str("convert it to netCDF-4, which is HDF5: nccopy -k nc4 ", path, " NEW.nc"));
  }
  if (std::string_view(start.data(), start.size()) == "GRIB") {
    throw Error(ErrorClass::kBadData, str(path, " is a GRIB file, not HDF5"),
                str("convert it to netCDF-4, which is HDF5: grib_to_netcdf -k 4 -o NEW.nc ", path));
  }
}

// The default driver; HDF5_USE_FILE_LOCKING still has the last word.
Hid access_without_locks() {
  Hid access(H5Pcreate(H5P_FILE_ACCESS), &H5Pclose);
#if H5_VERSION_GE(1, 12, 1) || (H5_VERSION_GE(1, 10, 7) && !H5_VERSION_GE(1, 11, 0))
  H5Pset_file_locking(access.get(), /*use_file_locking=*/0, /*ignore_when_disabled=*/1);
#endif
  return access;
}

// Where HDF5 looks for raw files with relative names.
fs::path external_prefix(const fs::path& folder) {
  const char* given = std::getenv("HDF5_EXTFILE_PREFIX");
  const std::string_view prefix = given == nullptr ? "" : given;
  constexpr std::string_view kOrigin = "${ORIGIN}";
  if (prefix.starts_with(kOrigin)) {
    return folder / fs::path(prefix.substr(kOrigin.size())).relative_path();
  }
  return fs::absolute(prefix.empty() || prefix == "." ? fs::path(".") : fs::path(prefix));
}

// HDF5's chunks have less than 2^32 elements, but those of a damaged file may not.
uint64_t chunk_bytes(const std::vector<hsize_t>& chunk, size_t item) {
  uint64_t bytes = item;
  for (const hsize_t extent : chunk) {
    bytes = __builtin_mul_overflow(bytes, extent, &bytes) ? std::numeric_limits<int64_t>::max() : bytes;
  }
  return std::min<uint64_t>(bytes, std::numeric_limits<int64_t>::max());
}

// Of the first index in as many dims as it takes to be small enough.
std::vector<hsize_t> smaller_chunk(std::vector<hsize_t> chunk, size_t item) {
  for (hsize_t& extent : chunk) {
    if (chunk_bytes(chunk, item) > kMostFilteredChunkBytes) {
      extent = 1;
    }
  }
  return chunk;
}

void check_chunks(hid_t dataset, hid_t creation, const std::string& where) {
  if (H5Pget_layout(creation) != H5D_CHUNKED || H5Pget_nfilters(creation) <= 0) {
    return;
  }
  const Hid type(H5Dget_type(dataset), &H5Tclose);
  const size_t item = H5Tget_size(type.get());
  std::vector<hsize_t> chunk(H5S_MAX_RANK);
  chunk.resize(static_cast<size_t>(std::max(H5Pget_chunk(creation, H5S_MAX_RANK, chunk.data()), 0)));
  if (chunk_bytes(chunk, item) > kMostFilteredChunkBytes) {
    throw Error(ErrorClass::kBadData,
                str(where, " is compressed in chunks of shape (", join(chunk), "), ",
                    bytes_text(static_cast<int64_t>(chunk_bytes(chunk, item))), " each, more than ",
                    bytes_text(static_cast<int64_t>(kMostFilteredChunkBytes))),
                str("each thread that reads would hold whole ones: where there is the memory for one, rewrite the file "
                    "with `h5repack -l DATASET:CHUNK=",
                    join(smaller_chunk(chunk, item), "x"), " FILE NEW`"));
  }
}

}  // namespace

int64_t existing_file_bytes(const std::string& path) {
  return PosixFile(path, PosixFile::Access::kRead).size();
}

Hid hdf5_open_file(const std::string& path, hid_t access) {
  hdf5_initialize();
  const Hid unlocked = access == H5P_DEFAULT ? access_without_locks() : Hid();
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, unlocked ? unlocked.get() : access);
  if (file < 0) {
    const std::string reason = hdf5_reason();
    if (reason.find("unable to lock file") != std::string::npos) {
      throw Error(ErrorClass::kIo, str(path, " cannot be opened: another program has locked it (", reason, ")"),
                  "wait for that program, or let HDF5 look at no locks: HDF5_USE_FILE_LOCKING=FALSE");
    }
    refuse_other_formats(path);
    throw Error(ErrorClass::kBadData, str(path, " cannot be opened as an HDF5 file: ", reason),
                "it is damaged, truncated or of another format: copy or make it again");
  }
  return {file, &H5Fclose};
}

Hid hdf5_open_dataset(hid_t file, const std::string& path, const std::string& dataset, int64_t chunk_cache_bytes) {
  const Hid access(H5Pcreate(H5P_DATASET_ACCESS), &H5Pclose);
  if (chunk_cache_bytes > 0) {
    H5Pset_chunk_cache(access.get(), H5D_CHUNK_CACHE_NSLOTS_DEFAULT, static_cast<size_t>(chunk_cache_bytes),
                       H5D_CHUNK_CACHE_W0_DEFAULT);
  }
  const hid_t opened = H5Dopen2(file, dataset.c_str(), access.get());
  if (opened < 0) {
    const std::string reason = hdf5_reason();
    if (H5Lexists(file, dataset.c_str(), H5P_DEFAULT) > 0) {
      throw Error(ErrorClass::kBadData, str(path, ": '", dataset, "' cannot be opened as a dataset (", reason, ")"),
                  str("it is a group, a link that leads nowhere, damaged, or of a newer HDF5 than this program's ",
                      H5_VERS_MAJOR, ".", H5_VERS_MINOR, ".", H5_VERS_RELEASE,
                      " (then `h5repack --high=v110` makes a file that it reads)"));
    }
    H5Eclear2(H5E_DEFAULT);
    throw Error(ErrorClass::kBadData, str(path, " has no dataset '", dataset, "' (", reason, ")"), datasets_hint(file));
  }
  Hid owned(opened, &H5Dclose);
  hdf5_check_storage(opened, str(path, ": dataset '", dataset, "'"));
  return owned;
}

void hdf5_check_storage(hid_t dataset, const std::string& where) {
  const Hid creation(H5Dget_create_plist(dataset), &H5Pclose);
  check_chunks(dataset, creation.get(), where);
  const int count = H5Pget_external_count(creation.get());
  if (count <= 0) {
    return;
  }
  const fs::path folder = fs::weakly_canonical(fs::absolute(hdf5_file_name(dataset)).parent_path());
  for (int i = 0; i < count; ++i) {
    std::vector<char> name(kMostPathBytes, '\0');
    off_t offset = 0;
    hsize_t bytes = 0;
    H5Pget_external(creation.get(), static_cast<unsigned>(i), name.size() - 1, name.data(), &offset, &bytes);
    const fs::path asked = external_prefix(folder) / name.data();
    std::error_code error;  // of a name that is too long, say
    const fs::path found = fs::weakly_canonical(asked, error);
    const fs::path& file = error ? asked : found;
    if (error || std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first != folder.end()) {
      throw Error(ErrorClass::kBadData,
                  str(where, " has external storage in ", shown(file.string(), kMostShownPath),
                      ", outside of the folder of its file, ", folder.string()),
                  "a data file must not make other files part of the data: move the raw file beside it, or make the "
                  "dataset anew with its values in the file");
    }
  }
}

std::string hdf5_file_name(hid_t object) {
  std::string name(static_cast<size_t>(std::max<ssize_t>(H5Fget_name(object, nullptr, 0), 0)), '\0');
  H5Fget_name(object, name.data(), name.size() + 1);
  return name;
}

std::string hdf5_text_attribute(hid_t object, const std::string& name) {
  if (H5Aexists(object, name.c_str()) <= 0) {
    H5Eclear2(H5E_DEFAULT);
    return {};
  }
  const Hid attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), &H5Aclose);
  return join(hdf5_texts(attribute.get(), str("attribute '", name, "'")), ",");
}

Hid hdf5_create_anew(const std::string& path, const Hid& creation, const Hid& access) {
  return hdf5_own(H5Fcreate(path.c_str(), H5F_ACC_EXCL, creation ? creation.get() : H5P_DEFAULT, access.get()),
                  &H5Fclose, ErrorClass::kCannotCreate, str("create ", path));
}

void hdf5_make_way(const std::string& path) {
  ::unlink(path.c_str());  // where it fails, the creation that follows says why
}

}  // namespace vit_hybrid::data
