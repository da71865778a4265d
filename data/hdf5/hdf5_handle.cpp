// HDF5's start-up, error texts and types.
#include "data/hdf5/hdf5_handle.h"

#include <algorithm>
#include <cstdlib>

#include "data/reading/box_runs.h"
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
    throw Error(error_class, str("cannot ", what, ": ", hdf5_reason()));
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

int64_t hdf5_value_bytes(const std::vector<int64_t>& shape, at::ScalarType type) {
  return bytes_of_shape(shape, static_cast<int64_t>(c10::elementSize(type))).value_or(-1);
}

std::vector<int64_t> hdf5_shape(hid_t space) {
  const int rank = H5Sget_simple_extent_ndims(space);
  std::vector<hsize_t> extents(static_cast<size_t>(std::max(rank, 0)));
  H5Sget_simple_extent_dims(space, extents.data(), nullptr);
  return {extents.begin(), extents.end()};
}

}  // namespace vit_hybrid::data
