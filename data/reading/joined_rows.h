// Rows of fields whose channels are planes of several arrays: read by a reader for each array, and put together.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "data/reading/row_reader.h"

namespace vit_hybrid::data {

/// Makes the reader of one array of all files.
using MakeRowReader = std::function<std::unique_ptr<RowReader>(std::vector<RowFile>)>;

/// Whether the channels of all files lie in arrays of the same number and order, and in these alike: rows of any files
/// can then be asked for in one call.
bool are_joined_alike(const std::vector<RowFile>& files);

/// Reads rows of kJoined layouts, all of as many arrays, in the boxes (channel, latitude, longitude) of their fields.
/// Planes go to their place directly where they lie in the file as they are wanted; else they are read beside it,
/// unpacked (Packing), turned where longitudes come before latitudes, and converted to the layout's type. As many
/// threads at once as the readers of the arrays allow, and collective where these are: then are_joined_alike() holds.
std::unique_ptr<RowReader> make_joined_row_reader(const std::vector<RowFile>& files, const MakeRowReader& make);

/// The field of an array that has one (ArrayLayout::dims are static_dims()), of its first row where its first dim is
/// time: float32 [latitudes, longitudes], unpacked and turned as above; NaN where values are missing. `reader` reads
/// `array` as its file 0.
at::Tensor read_static_field(const ArrayLayout& array, RowReader& reader);

}  // namespace vit_hybrid::data
