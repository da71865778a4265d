// Recognition of arrays whose channels lie at the other end.
#include "data/datasets/field_order.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

using Kind = FieldOrder::Kind;

constexpr int64_t kColours = 3;
constexpr int64_t kMuchSmaller = 4;  // times

// In Python, for a dataset that the memory holds.
std::string transposition(const std::string& name, const char* order) {
  return str("python3 -c \"import h5py; h5py.File('NEW.h5', 'w')['", name, "'] = h5py.File('OLD.h5')['", name,
             "'][:].transpose(", order, ")\", and docs/data.md has it for large files");
}

// Of "a.h5: dataset 'fields'" the name.
std::string name_in(const std::string& where, const char* otherwise) {
  const size_t end = where.rfind('\'');
  const size_t begin = end == std::string::npos || end == 0 ? std::string::npos : where.rfind('\'', end - 1);
  return begin == std::string::npos ? otherwise : where.substr(begin + 1, end - begin - 1);
}

// What says that the channels are last; nothing where they are not, or something says otherwise.
std::string sign_of_channels_last(const FieldOrder& order) {
  const auto& [time, first, second, last] = order.kinds;
  const auto& extents = order.shape;
  if (first == Kind::kLatitude || first == Kind::kLongitude) {
    return str("dim 1 is a ", first == Kind::kLatitude ? "latitude" : "longitude");
  }
  if (last == Kind::kChannel) {
    return "dim 3 is that of the channels";
  }
  if (first == Kind::kChannel || second != Kind::kUnknown || last != Kind::kUnknown) {
    return {};
  }
  if (order.num_channel_names > 0 && extents[1] != extents[3]) {
    if (order.num_channel_names == extents[1] || order.num_channel_names == extents[3]) {
      return order.num_channel_names == extents[3] ? str(extents[3], " channels are named") : "";
    }
  }
  if (order.num_latitudes > 0 && order.num_longitudes > 0) {
    const bool is_right = order.num_latitudes == extents[2] && order.num_longitudes == extents[3];
    const bool is_last = order.num_latitudes == extents[1] && order.num_longitudes == extents[2];
    if (is_right != is_last) {
      return is_last ? str("there are ", extents[1], " latitudes and ", extents[2], " longitudes") : "";
    }
  }
  const bool is_small = kMuchSmaller * extents[3] <= std::min(extents[1], extents[2]);
  return is_small ? str("dim 3 is small beside dims 1 and 2, and no names of channels (attribute 'channels') or "
                        "coordinates say that they lie otherwise")
                  : "";
}

}  // namespace

void require_channels_first(const FieldOrder& order, const std::string& where) {
  if (order.shape.size() != order.kinds.size() || order.shape[3] == 0) {
    return;
  }
  const std::string sign = sign_of_channels_last(order);
  if (sign.empty()) {
    return;
  }
  const bool is_turned = order.kinds[1] == Kind::kLongitude;
  throw Error(ErrorClass::kBadData,
              str(where, " (", join(order.shape), ") has its channels last, (time, ",
                  is_turned ? "longitude, latitude" : "latitude, longitude", ", channel): ", sign,
                  "; needed is (time, channel, latitude, longitude)"),
              transposition(name_in(where, "fields"), is_turned ? "0, 3, 2, 1" : "0, 3, 1, 2"));
}

void require_colours_last(const std::vector<int64_t>& shape, const std::string& where) {
  if (shape.size() == 4 && shape[1] == kColours && shape[3] != kColours) {
    throw Error(ErrorClass::kBadData,
                str(where, " (", join(shape),
                    ") has its colours first, (number, 3, height, width); needed is (number, height, width, 3)"),
                transposition(name_in(where, "images"), "0, 2, 3, 1"));
  }
}

}  // namespace vit_hybrid::data
