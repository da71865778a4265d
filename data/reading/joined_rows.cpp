// Which boxes of which arrays make a box of fields; and planes unpacked, turned and converted.
#include "data/reading/joined_rows.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "data/reading/box_runs.h"
#include "data/reading/chunk_rows.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

// Planes of an array, and where they go in the box of the field.
struct PlanePiece {
  RowBox box;                        // of the array; box.at: of the field's values
  std::array<int64_t, 3> extents{};  // planes, latitudes, longitudes
};

bool counts_planes(DimKind kind) {
  return kind == DimKind::kLevel || kind == DimKind::kChannel;
}

// What of array number `array` belongs to the box (channel, latitude, longitude) of the field.
std::vector<PlanePiece> pieces_of(const ArrayLayout& field, int64_t array, const RowBox& box) {
  const ArrayLayout& layout = field.arrays[static_cast<size_t>(array)];
  std::vector<PlanePiece> pieces;
  for (const ChannelRun& run : field.runs) {
    const int64_t first = std::max(run.channel, box.start[0]);
    const int64_t count = std::min(run.channel + run.count, box.start[0] + box.size[0]) - first;
    if (run.array != array || count <= 0) {
      continue;
    }
    PlanePiece piece;
    piece.extents = {count, box.size[1], box.size[2]};
    piece.box.at = box.at + (first - box.start[0]) * box.size[1] * box.size[2];
    for (size_t d = 1; d < layout.dims.size(); ++d) {
      const DimKind kind = layout.dims[d];
      const bool is_latitude = kind == DimKind::kLatitude, is_longitude = kind == DimKind::kLongitude;
      piece.box.start.push_back(is_latitude           ? box.start[1]
                                : is_longitude        ? box.start[2]
                                : counts_planes(kind) ? run.plane + first - run.channel
                                                      : 0);
      piece.box.size.push_back(is_latitude           ? box.size[1]
                               : is_longitude        ? box.size[2]
                               : counts_planes(kind) ? count
                                                     : 1);
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// Strides of (plane, latitude, longitude) in a box of the array, which is row-major in the array's own dims.
std::array<int64_t, 3> strides_in(const ArrayLayout& layout, const RowBox& box) {
  std::array<int64_t, 3> strides{};
  int64_t stride = 1;
  for (size_t d = layout.dims.size(); d-- > 1;) {
    const DimKind kind = layout.dims[d];
    const size_t of = kind == DimKind::kLatitude ? 1 : kind == DimKind::kLongitude ? 2 : 0;
    if (of != 0 || counts_planes(kind)) {
      strides[of] = stride;
    }
    stride *= box.size[d - 1];
  }
  return strides;
}

// Whether the array has its values as the field wants them.
bool is_as_wanted(const ArrayLayout& field, const ArrayLayout& array) {
  std::vector<DimKind> order;
  std::copy_if(array.dims.begin() + 1, array.dims.end(), std::back_inserter(order),
               [](DimKind kind) { return kind != DimKind::kSingle; });
  const bool is_in_order =
      order.size() >= 2 && order.back() == DimKind::kLongitude && order[order.size() - 2] == DimKind::kLatitude;
  return is_in_order && array.type == field.type && array.packing.is_identity();
}

template <class From, class To>
void place(const From* from, const ArrayLayout& array, const PlanePiece& piece, To* to) {
  const auto strides = strides_in(array, piece.box);
  const Packing& packing = array.packing;
  for (int64_t plane = 0; plane < piece.extents[0]; ++plane) {
    for (int64_t i = 0; i < piece.extents[1]; ++i) {
      const From* row = from + plane * strides[0] + i * strides[1];
      for (int64_t j = 0; j < piece.extents[2]; ++j) {
        const auto stored = static_cast<double>(row[j * strides[2]]);
        const bool is_missing = packing.has_fill && stored == packing.fill;
        *to++ = static_cast<To>(is_missing ? std::numeric_limits<double>::quiet_NaN()
                                           : stored * packing.scale + packing.offset);
      }
    }
  }
}

// Into the field's values behind `to`.
void unpack_planes(const char* from, at::ScalarType field_type, const ArrayLayout& array, const PlanePiece& piece,
                   void* to) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, array.type, "unpack", [&] {
    const auto* values = reinterpret_cast<const scalar_t*>(from);
    if (field_type == array.type) {
      place(values, array, piece, static_cast<scalar_t*>(to) + piece.box.at);
    } else {
      VH_ASSERT(field_type == at::kFloat, "fields of several types are float32");
      place(values, array, piece, static_cast<float*>(to) + piece.box.at);
    }
  });
}

class JoinedRowReader : public RowReader {
 public:
  JoinedRowReader(const std::vector<RowFile>& files, const MakeRowReader& make)
      : is_alike_(are_joined_alike(files)), files_(files) {
    for (size_t array = 0; array < files.front().layout.arrays.size(); ++array) {
      std::vector<RowFile> of_array;
      for (const RowFile& file : files) {
        VH_ASSERT(array < file.layout.arrays.size(), str(file.path, " has other arrays"));
        of_array.push_back({file.path_of(file.layout.arrays[array]), file.layout.arrays[array], file.staged_as});
      }
      readers_.push_back(make(std::move(of_array)));
    }
  }

  void read(std::span<const RowRead> rows, std::span<const RowBox> boxes, const Arrived& arrived) override {
    for (size_t first = 0; first < rows.size() || (first == 0 && is_alike_);) {
      const auto rest = rows.subspan(first);
      const auto other =
          std::find_if(rest.begin(), rest.end(), [&](const RowRead& row) { return row.file != rest.front().file; });
      const auto count = is_alike_ ? rest.size() : static_cast<size_t>(other - rest.begin());
      const int64_t file = count > 0 ? rest.front().file : 0;
      const auto tell = [&](size_t read, int64_t begin, int64_t bytes) { arrived(first + read, begin, bytes); };
      for (size_t array = 0; array < readers_.size(); ++array) {
        read_array(array, files_[static_cast<size_t>(file)].layout, rest.first(count), boxes,
                   arrived ? Arrived(tell) : Arrived());
      }
      first += std::max<size_t>(count, 1);
    }
  }

 private:
  void read_array(size_t number, const ArrayLayout& field, std::span<const RowRead> rows, std::span<const RowBox> boxes,
                  const Arrived& arrived) {
    const ArrayLayout& array = field.arrays[number];
    std::vector<PlanePiece> pieces;
    for (const RowBox& box : boxes) {
      auto more = pieces_of(field, static_cast<int64_t>(number), box);
      std::move(more.begin(), more.end(), std::back_inserter(pieces));
    }
    std::vector<RowBox> in_array;
    std::transform(pieces.begin(), pieces.end(), std::back_inserter(in_array),
                   [](const PlanePiece& p) { return p.box; });
    if (is_as_wanted(field, array)) {
      readers_[number]->read(rows, in_array, arrived);
      return;
    }
    int64_t row_values = 0;
    for (RowBox& box : in_array) {
      box.at = row_values;
      row_values += box.num_values();
    }
    const at::Tensor beside = buffers_.take({static_cast<int64_t>(rows.size()), row_values}, array.type);
    const auto item = static_cast<int64_t>(c10::elementSize(array.type));
    std::vector<RowRead> reads(rows.begin(), rows.end());
    for (size_t i = 0; i < reads.size(); ++i) {
      reads[i].to = static_cast<char*>(beside.data_ptr()) + static_cast<int64_t>(i) * row_values * item;
    }
    readers_[number]->read(reads, in_array, {});
    const auto item_of_field = static_cast<int64_t>(c10::elementSize(field.type));
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t p = 0; p < pieces.size(); ++p) {
        const auto* from = static_cast<const char*>(reads[i].to) + in_array[p].at * item;
        unpack_planes(from, field.type, array, pieces[p], rows[i].to);
        if (arrived) {
          arrived(i, pieces[p].box.at * item_of_field, pieces[p].box.num_values() * item_of_field);
        }
      }
    }
  }

  const bool is_alike_;
  const std::vector<RowFile> files_;
  std::vector<std::unique_ptr<RowReader>> readers_;
  TensorPool buffers_;
};

}  // namespace

bool are_joined_alike(const std::vector<RowFile>& files) {
  const ArrayLayout& first = files.front().layout;
  return std::all_of(files.begin(), files.end(), [&](const RowFile& file) {
    const auto same_array = [](const ArrayLayout& a, const ArrayLayout& b) {
      return a.type == b.type && a.dims == b.dims && a.packing == b.packing;
    };
    return file.layout.runs == first.runs && std::equal(file.layout.arrays.begin(), file.layout.arrays.end(),
                                                        first.arrays.begin(), first.arrays.end(), same_array);
  });
}

std::unique_ptr<RowReader> make_joined_row_reader(const std::vector<RowFile>& files, const MakeRowReader& make) {
  return std::make_unique<JoinedRowReader>(files, make);
}

at::Tensor read_static_field(const ArrayLayout& array, RowReader& reader) {
  ArrayLayout plane = array;  // with a first dim of rows, of which one is read
  if (plane.dims.front() != DimKind::kTime) {
    plane.dims.insert(plane.dims.begin(), DimKind::kTime);
    plane.shape.insert(plane.shape.begin(), 1);
  }
  const int64_t values = num_elements(inner_dims(plane.shape));
  const int64_t num_rows = values / num_elements(inner_dims(array.shape));
  const at::Tensor stored = at::empty({values}, array.type);
  std::vector<RowRead> rows;
  for (int64_t row = 0; row < num_rows; ++row) {
    rows.push_back({0, row, static_cast<char*>(stored.data_ptr()) + row * array.row_bytes()});
  }
  const RowBox row = RowBox::whole(array);
  reader.read(rows, {&row, 1}, {});
  PlanePiece piece{RowBox::whole(plane), {1, 1, 1}};
  for (size_t d = 1; d < plane.dims.size(); ++d) {
    const DimKind kind = plane.dims[d];
    piece.extents[1] = kind == DimKind::kLatitude ? plane.shape[d] : piece.extents[1];
    piece.extents[2] = kind == DimKind::kLongitude ? plane.shape[d] : piece.extents[2];
  }
  at::Tensor field = at::empty({piece.extents[1], piece.extents[2]}, at::kFloat);
  unpack_planes(static_cast<const char*>(stored.const_data_ptr()), at::kFloat, plane, piece, field.data_ptr());
  return field;
}

}  // namespace vit_hybrid::data
