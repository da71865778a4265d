// Attributes of HDF5 objects: texts, numbers, and copies of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_open.h"
#include "data/hdf5/hdf5_writer.h"

namespace vit_hybrid::data {

/// All texts of an attribute or dataset, of fixed or variable length; none where it holds anything else or cannot be
/// read. Error(kBadData) for more than 16 MiB of them. `what` names it in messages: "attribute 'channels'".
std::vector<std::string> hdf5_texts(hid_t object, const std::string& what);

/// Error(kBadData), naming the file and `what`, where the values of an attribute or dataset take more than `most`
/// bytes. Of texts and lists of variable length those that they point to count, which are not read for that: a small
/// file may have one long text in many places. Other lists inside of compounds do not count.
void hdf5_require_few_bytes(hid_t object, int64_t most, const std::string& what);

/// Adds attributes to a file or dataset; `path` is the file's, for messages. HDF5 has no room for 64 KiB in one: of a
/// longer text or list each 60,000 bytes are one, `name`, `name.1`, `name.2`, ... Error(kCannotCreate), Error(kIo).
void hdf5_add_attributes(hid_t object, const Hdf5Attributes& attributes, const std::string& path);

/// The text of an attribute as hdf5_text_attribute() reads it, joined again where it was too long for one.
std::string hdf5_joined_text(hid_t object, const std::string& name);

/// The numbers of a list that hdf5_add_attributes() wrote, joined likewise. Nothing where its one dim is not a list's.
std::optional<std::vector<double>> hdf5_joined_numbers(hid_t object, const std::string& name);

/// Operator of H5Aiterate2(): appends the attribute's name to a std::vector<std::string>.
herr_t hdf5_note_name(hid_t, const char* name, const H5A_info_t*, void* names);

/// In ascending order. `doing` is for Error(kIo): "cannot <doing>: ...".
std::vector<std::string> hdf5_attribute_names(hid_t object, const std::string& doing);

/// Sees every value on its way, with its type in memory; may change what it refers to.
using Hdf5ValueChange = std::function<void(hid_t type, char* value)>;

/// Gives `to`, which has no attribute `name` yet, the one of `from`: its type (of a committed type a copy), extent and
/// values. References keep their bytes, which mean nothing in another file, unless `change` makes them anew. Where the
/// one of `from` cannot be read, `to` is left alone. Error(kIo).
void hdf5_copy_attribute(hid_t from, hid_t to, const std::string& name, const std::string& doing,
                         const Hdf5ValueChange& change = {});

}  // namespace vit_hybrid::data
