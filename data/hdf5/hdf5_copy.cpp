// Whole copies by HDF5 where they are right, else a new dataset and its values in blocks.
#include "data/hdf5/hdf5_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "data/hdf5/hdf5_compare.h"
#include "data/hdf5/hdf5_crash_guard.h"
#include "data/hdf5/hdf5_layout.h"
#include "data/hdf5/hdf5_open.h"
#include "data/hdf5/hdf5_scales.h"
#include "data/reading/box_runs.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr size_t kCopyBlockBytes = size_t{4} << 20;

// H5Ocopy copies the fill value of a variable-length type as the bytes in the file, which are an address in the old
// one, and sets references to nothing.
bool is_copied_whole(hid_t dataset) {
  const Hid type(H5Dget_type(dataset), &H5Tclose);
  return !hdf5_has_values_elsewhere(dataset) && !hdf5_refers_to_its_file(type.get());
}

// HDF5 1.10 crashes where it cannot write the values of what H5Ocopy copies: they are given a place before.
void require_room(hid_t to, hsize_t bytes, const std::string& doing) {
  hsize_t end = 0;
  void* handle = nullptr;
  if (bytes == 0 || H5Fget_filesize(to, &end) < 0 || H5Fget_vfd_handle(to, H5P_DEFAULT, &handle) < 0) {
    return;
  }
  const int file = *static_cast<int*>(handle);
  struct stat before {};
  ::fstat(file, &before);
  const int error = ::fallocate(file, 0, static_cast<off_t>(end), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  // Some file systems cannot do it.
  if (::ftruncate(file, before.st_size) != 0 || error == ENOSPC || error == EDQUOT || error == EFBIG) {
    throw Error(ErrorClass::kIo, str("cannot ", doing, ": ", reason(error != 0 ? error : errno)));
  }
}

// The value itself, not where it lies in the old file.
void set_fill_value(hid_t from, hid_t type, hid_t creation, const std::string& doing) {
  H5D_fill_value_t kind = H5D_FILL_VALUE_UNDEFINED;
  hdf5_check(H5Pfill_value_defined(from, &kind), ErrorClass::kIo, doing);
  if (kind != H5D_FILL_VALUE_USER_DEFINED) {
    return;
  }
  std::vector<char> value(H5Tget_size(type));
  hdf5_check(H5Pget_fill_value(from, type, value.data()), ErrorClass::kIo, doing);
  hdf5_check(H5Pset_fill_value(creation, type, value.data()), ErrorClass::kIo, doing);
  const Hid one(H5Screate(H5S_SCALAR), &H5Sclose);
  H5Dvlen_reclaim(type, one.get(), H5P_DEFAULT, value.data());
}

// Empty where there are no chunks.
std::vector<hsize_t> chunk_of(hid_t creation, size_t rank) {
  std::vector<hsize_t> chunk(H5Pget_layout(creation) == H5D_CHUNKED ? rank : 0);
  if (!chunk.empty()) {
    H5Pget_chunk(creation, static_cast<int>(rank), chunk.data());
  }
  return chunk;
}

// Storage, chunks and filters of `from`, or contiguous storage where its values are in other files.
Hid creation_like(hid_t dataset, hid_t type, const std::string& doing) {
  const Hid from = hdf5_own(H5Dget_create_plist(dataset), &H5Pclose, ErrorClass::kIo, doing);
  Hid creation(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
  if (!hdf5_has_values_elsewhere(dataset)) {
    H5Pset_layout(creation.get(), H5Pget_layout(from.get()));
    if (H5Pget_layout(from.get()) == H5D_CHUNKED) {
      const Hid space(H5Dget_space(dataset), &H5Sclose);
      const std::vector<hsize_t> chunk = chunk_of(from.get(), hdf5_shape(space.get()).size());
      hdf5_check(H5Pset_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data()), ErrorClass::kIo, doing);
    }
    for (int i = 0; i < H5Pget_nfilters(from.get()); ++i) {
      unsigned flags = 0;
      std::vector<unsigned> parameters(64);
      size_t count = parameters.size();
      const H5Z_filter_t filter =
          H5Pget_filter2(from.get(), static_cast<unsigned>(i), &flags, &count, parameters.data(), 0, nullptr, nullptr);
      hdf5_check(H5Pset_filter(creation.get(), filter, flags, std::min(count, parameters.size()), parameters.data()),
                 ErrorClass::kIo, doing);
    }
  }
  H5Pset_obj_track_times(creation.get(), false);  // the same data make the same file
  set_fill_value(from.get(), type, creation.get(), doing);
  return creation;
}

Hid space_like(hid_t dataset) {
  Hid space(H5Dget_space(dataset), &H5Sclose);
  if (!hdf5_has_values_elsewhere(dataset)) {
    return space;
  }
  const auto shape = hdf5_shape(space.get());  // what lies in one run has no room to grow
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  return {H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), &H5Sclose};
}

// A part of a dataset, in elements; of a single value without dims.
struct Box {
  std::vector<hsize_t> start;
  std::vector<hsize_t> extents;
};

// Of a few MiB and of whole chunks (`chunk` is empty where there are none): no chunk is decoded twice.
std::vector<Box> boxes_of_all(const std::vector<int64_t>& shape, const std::vector<hsize_t>& chunk, size_t item) {
  Box box{std::vector<hsize_t>(shape.size(), 0), {shape.begin(), shape.end()}};
  std::vector<hsize_t> most = box.extents;
  hsize_t bytes = static_cast<hsize_t>(num_elements(shape)) * item;
  for (size_t d = 0; d < shape.size() && bytes > kCopyBlockBytes; ++d) {
    const hsize_t unit = chunk.empty() ? 1 : chunk[d];
    bytes = std::max<hsize_t>(bytes / most[d], 1);
    const hsize_t units = (std::max<hsize_t>(kCopyBlockBytes / bytes, 1) + unit - 1) / unit;
    most[d] = std::min(units * unit, most[d]);
    bytes *= most[d];
  }
  std::vector<Box> boxes;
  for (bool is_there = true; is_there;) {
    for (size_t d = 0; d < shape.size(); ++d) {
      box.extents[d] = std::min(most[d], static_cast<hsize_t>(shape[d]) - box.start[d]);
    }
    boxes.push_back(box);
    is_there = false;
    for (size_t d = shape.size(); !is_there && d-- > 0;) {
      box.start[d] += most[d];
      is_there = box.start[d] < static_cast<hsize_t>(shape[d]);
      box.start[d] = is_there ? box.start[d] : 0;
    }
  }
  return boxes;
}

#if H5_VERSION_GE(1, 10, 5)
hsize_t num_stored_chunks(hid_t dataset, hid_t space) {
  hsize_t count = 0;
  H5Dget_num_chunks(dataset, space, &count);
  return count;
}

std::vector<Box> stored_chunks(hid_t dataset, hid_t space, const std::vector<hsize_t>& chunk) {
  const auto shape = hdf5_shape(space);
  const hsize_t count = num_stored_chunks(dataset, space);
  std::vector<Box> boxes(count, {std::vector<hsize_t>(shape.size()), chunk});
  for (hsize_t i = 0; i < count; ++i) {
    H5Dget_chunk_info(dataset, space, i, boxes[i].start.data(), nullptr, nullptr, nullptr);
    for (size_t d = 0; d < shape.size(); ++d) {
      boxes[i].extents[d] = std::min(chunk[d], static_cast<hsize_t>(shape[d]) - boxes[i].start[d]);
    }
  }
  return boxes;
}

// Whether less than half of the values have a chunk: there may be terabytes that nobody ever wrote.
bool is_sparse(hid_t dataset, hid_t space, const std::vector<hsize_t>& chunk) {
  double stored = static_cast<double>(num_stored_chunks(dataset, space));
  for (const hsize_t extent : chunk) {
    stored *= static_cast<double>(extent);
  }
  return 2.0 * stored < static_cast<double>(H5Sget_simple_extent_npoints(space));
}
#endif

// HDF5 1.10 cannot read values that were never written of filtered chunks of variable-length values: it would write
// their fill value into the file first. So what is not stored is not read there, and not stored in a copy either.
std::vector<Box> boxes_of(hid_t dataset, hid_t type, hid_t space) {
  const Hid creation(H5Dget_create_plist(dataset), &H5Pclose);
  if (H5Sget_simple_extent_npoints(space) <= 0 || hdf5_is_never_written(dataset)) {
    return {};
  }
  const auto shape = hdf5_shape(space);
  const std::vector<hsize_t> chunk = chunk_of(creation.get(), shape.size());
#if H5_VERSION_GE(1, 10, 5)
  if (!chunk.empty() && (hdf5_refers_to_its_file(type) || is_sparse(dataset, space, chunk))) {
    return stored_chunks(dataset, space, chunk);
  }
#endif
  return boxes_of_all(shape, chunk, H5Tget_size(type));
}

constexpr int64_t kMostAlignedFrom = int64_t{64} << 10;  // bytes from which objects are aligned

struct Link {
  std::string name;
  H5L_type_t type;
  std::string object;  // of a hard link the first name of what it leads to
  bool is_first() const { return type == H5L_TYPE_HARD && object == name; }
  bool operator==(const Link&) const = default;
};

struct NamedLinks {
  std::vector<Link> links;
  std::string rewritten;  // the first name of the dataset that is made anew
};

herr_t note_link(hid_t, const char* name, const H5L_info_t* info, void* links) {
  static_cast<std::vector<Link>*>(links)->push_back({name, info->type, ""});
  return 0;
}

// Where it lies in the file.
hobj_ref_t place_of(hid_t file, const std::string& name, const std::string& doing) {
  hobj_ref_t place = 0;
  hdf5_check(H5Rcreate(&place, file, name.c_str(), H5R_OBJECT, -1), ErrorClass::kIo, doing);
  return place;
}

// All, with the one name among them of a dataset that a user may have named otherwise: "/fields", or by a link.
NamedLinks links_of(hid_t file, const std::string& path, const std::string& dataset) {
  const std::string doing = "list the objects of " + path;
  NamedLinks found;
  hdf5_check(H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, &note_link, &found.links), ErrorClass::kIo, doing);
  std::map<hobj_ref_t, std::string> first_names = {{place_of(file, "/", doing), "/"}};
  for (Link& link : found.links) {
    if (link.type == H5L_TYPE_HARD) {
      link.object = first_names.try_emplace(place_of(file, link.name, doing), link.name).first->second;
    }
  }
  const Hid opened = hdf5_open_dataset(file, path, dataset);
  const std::string owner = hdf5_file_name(opened.get());
  if (owner != hdf5_file_name(file)) {
    throw Error(ErrorClass::kUsage, str(path, ": dataset '", dataset, "' is a link to ", owner), "repack that file");
  }
  found.rewritten = first_names.at(place_of(opened.get(), ".", doing));
  return found;
}

// What a soft or external link says.
std::vector<char> link_value(hid_t file, const std::string& name, const std::string& doing) {
  H5L_info_t info{};
  hdf5_check(H5Lget_info(file, name.c_str(), &info, H5P_DEFAULT), ErrorClass::kIo, doing);
  std::vector<char> value(info.u.val_size + 1, '\0');
  hdf5_check(H5Lget_val(file, name.c_str(), value.data(), value.size(), H5P_DEFAULT), ErrorClass::kIo, doing);
  return value;
}

// From one open file into another.
class Copy {
 public:
  Copy(const std::string& from, const std::string& to, const Hdf5Rewrite& rewrite)
      : from_path_(from), to_path_(to), rewrite_(rewrite), from_(hdf5_open_file(from)), to_(create_file()) {}

  void run() {
    const NamedLinks found = links_of(from_.get(), from_path_, rewrite_.dataset);
    for (const Link& link : found.links) {
      copy_link(link, found.rewritten);
    }
    // Once all objects are there to be referred to.
    for (const std::string& name : without_values_) {
      copy_values(name);
    }
    copy_attributes("/");
    for (const Link& link : found.links) {
      if (link.is_first()) {
        copy_attributes(link.name);
      }
    }
    check(to_.close() ? 0 : -1, "close the file");
  }

 private:
  Hid create_file() const {
    const Hid dataset = hdf5_open_dataset(from_.get(), from_path_, rewrite_.dataset);
    const Hid space(H5Dget_space(dataset.get()), &H5Sclose);
    const auto item = static_cast<int64_t>(c10::elementSize(rewrite_.type));
    const int64_t unit = item * num_elements(rewrite_.chunk.empty() ? hdf5_shape(space.get()) : rewrite_.chunk);
    const Hid access(H5Pcreate(H5P_FILE_ACCESS), &H5Pclose);
    H5Pset_alignment(access.get(), static_cast<hsize_t>(std::clamp<int64_t>(unit, 1, kMostAlignedFrom)),
                     static_cast<hsize_t>(rewrite_.alignment));
    hdf5_make_way(to_path_);
    return hdf5_create_anew(to_path_, Hid(), access);
  }

  std::string what(const std::string& doing) const { return str(doing, " of ", from_path_, " for ", to_path_); }
  void check(herr_t status, const std::string& doing) const { hdf5_check(status, ErrorClass::kIo, what(doing)); }
  Hid own(hid_t id, Hid::Close close, const std::string& doing) const {
    return hdf5_own(id, close, ErrorClass::kIo, what(doing));
  }

  void copy_link(const Link& link, const std::string& rewritten) {
    if (link.is_first()) {
      return link.name == rewritten ? create_dataset(link.name) : copy_object(link.name);
    }
    if (link.type == H5L_TYPE_HARD) {
      return check(
          H5Lcreate_hard(to_.get(), link.object.c_str(), to_.get(), link.name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
          "make link " + link.name);
    }
    const std::vector<char> value = link_value(from_.get(), link.name, what("read link " + link.name));
    if (link.type == H5L_TYPE_SOFT) {
      return check(H5Lcreate_soft(value.data(), to_.get(), link.name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
                   "make link " + link.name);
    }
    const char* file = nullptr;
    const char* object = nullptr;
    unsigned flags = 0;
    check(H5Lunpack_elink_val(value.data(), value.size() - 1, &flags, &file, &object), "read link " + link.name);
    check(H5Lcreate_external(file, object, to_.get(), link.name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
          "make link " + link.name);
  }

  void copy_object(const std::string& name) {
    const Hid object = own(H5Oopen(from_.get(), name.c_str(), H5P_DEFAULT), &H5Oclose, "open " + name);
    if (H5Iget_type(object.get()) == H5I_GROUP) {
      static_cast<void>(own(H5Gcreate2(to_.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), &H5Gclose,
                            "make group " + name));
    } else if (H5Iget_type(object.get()) == H5I_DATASET) {
      check_source(object.get(), name);
      if (!hdf5_copy_dataset(object.get(), to_.get(), name, what("copy " + name))) {
        without_values_.push_back(name);
      }
    } else {
      const Hid options(H5Pcreate(H5P_OBJECT_COPY), &H5Pclose);
      H5Pset_copy_object(options.get(), H5O_COPY_WITHOUT_ATTR_FLAG);
      check(H5Ocopy(object.get(), ".", to_.get(), name.c_str(), options.get(), H5P_DEFAULT), "copy " + name);
    }
  }

  // Of a virtual dataset also what it is made of: a part may have external storage, or not be there.
  void check_source(hid_t dataset, const std::string& name) const {
    const std::string where = str(from_path_, ": dataset '", name, "'");
    hdf5_check_storage(dataset, where);
    const Hid creation(H5Dget_create_plist(dataset), &H5Pclose);
    if (H5Pget_layout(creation.get()) == H5D_VIRTUAL) {
      require_readable(inspect_dataset(from_path_, name), where);
    }
  }

  void copy_values(const std::string& name) {
    const std::string doing = "copy the values of " + name;
    const Hid source = own(H5Dopen2(from_.get(), name.c_str(), H5P_DEFAULT), &H5Dclose, doing);
    const Hid target = own(H5Dopen2(to_.get(), name.c_str(), H5P_DEFAULT), &H5Dclose, doing);
    hdf5_copy_values(source.get(), target.get(), what(doing),
                     [&](hid_t type, char* value) { redirect(type, value, doing); });
  }

  void create_dataset(const std::string& name) {
    const Hid source = own(H5Dopen2(from_.get(), name.c_str(), H5P_DEFAULT), &H5Dclose, "open " + name);
    const Hid old_space(H5Dget_space(source.get()), &H5Sclose);
    const auto shape = hdf5_shape(old_space.get());
    const std::vector<hsize_t> extents(shape.begin(), shape.end());
    const std::vector<hsize_t> chunk(rewrite_.chunk.begin(), rewrite_.chunk.end());
    const Hid space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), &H5Sclose);
    const Hid creation(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
    if (!chunk.empty()) {
      check(H5Pset_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data()), "set chunks");
    }
    H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
    H5Pset_obj_track_times(creation.get(), false);  // the same data make the same file
    static_cast<void>(own(H5Dcreate2(to_.get(), name.c_str(), hdf5_memory_type(rewrite_.type), space.get(), H5P_DEFAULT,
                                     creation.get(), H5P_DEFAULT),
                          &H5Dclose, "make dataset " + name));
  }

  void copy_attributes(const std::string& name) {
    const Hid source = own(H5Oopen(from_.get(), name.c_str(), H5P_DEFAULT), &H5Oclose, "open " + name);
    const Hid target = own(H5Oopen(to_.get(), name.c_str(), H5P_DEFAULT), &H5Oclose, "open " + name);
    for (const std::string& attribute : hdf5_attribute_names(source.get(), what("list the attributes of " + name))) {
      copy_attribute(source.get(), target.get(), name, attribute);
    }
  }

  void copy_attribute(hid_t source, hid_t target, const std::string& object, const std::string& name) {
    const std::string doing = str("copy attribute '", name, "' of ", object);
    hdf5_copy_attribute(source, target, name, what(doing),
                        [&](hid_t type, char* value) { redirect(type, value, doing); });
  }

  // Makes the references in a value of `type` point to the objects of the same names in the new file.
  void redirect(hid_t type, char* value, const std::string& doing) const {
    switch (H5Tget_class(type)) {
      case H5T_REFERENCE:
        return redirect_reference(type, value, doing);
      case H5T_COMPOUND:
        for (int i = 0; i < H5Tget_nmembers(type); ++i) {
          const auto member = static_cast<unsigned>(i);
          const Hid part(H5Tget_member_type(type, member), &H5Tclose);
          redirect(part.get(), value + H5Tget_member_offset(type, member), doing);
        }
        return;
      case H5T_VLEN: {
        auto* list = reinterpret_cast<hvl_t*>(value);
        return redirect_all(type, static_cast<char*>(list->p), list->len, doing);
      }
      case H5T_ARRAY: {
        const Hid part(H5Tget_super(type), &H5Tclose);
        return redirect_all(type, value, H5Tget_size(type) / H5Tget_size(part.get()), doing);
      }
      default:
        return;
    }
  }

  void redirect_all(hid_t type, char* values, size_t count, const std::string& doing) const {
    const Hid part(H5Tget_super(type), &H5Tclose);
    for (size_t i = 0; i < count; ++i) {
      redirect(part.get(), values + i * H5Tget_size(part.get()), doing);
    }
  }

  void redirect_reference(hid_t type, char* value, const std::string& doing) const {
    const bool is_region = H5Tequal(type, H5T_STD_REF_DSETREG) > 0;
    if (!is_region && H5Tequal(type, H5T_STD_REF_OBJ) <= 0) {
      throw Error(ErrorClass::kBadData, str("cannot ", what(doing), ": it has references of a kind that is not known"),
                  "remove them from a copy of the file");
    }
    if (std::all_of(value, value + H5Tget_size(type), [](char byte) { return byte == '\0'; })) {
      return;  // to nothing
    }
    const H5R_type_t kind = is_region ? H5R_DATASET_REGION : H5R_OBJECT;
    const Hid object = own(H5Rdereference2(from_.get(), H5P_DEFAULT, kind, value), &H5Oclose, doing);
    const Hid region = is_region ? own(H5Rget_region(from_.get(), kind, value), &H5Sclose, doing) : Hid();
    check(H5Rcreate(value, to_.get(), hdf5_object_name(object.get()).c_str(), kind, region ? region.get() : -1), doing);
  }

  const std::string& from_path_;
  const std::string& to_path_;
  const Hdf5Rewrite& rewrite_;
  Hid from_;
  Hid to_;
  std::vector<std::string> without_values_;  // datasets that are made
};

void compare_attributes(hid_t from, hid_t to, const std::string& where) {
  const auto names = hdf5_attribute_names(from, "list the attributes of " + where);
  if (names != hdf5_attribute_names(to, "list the attributes of " + where)) {
    hdf5_fail_comparison(where, "the list of its attributes");
  }
  for (const std::string& name : names) {
    hdf5_require_same_attribute(from, to, name, where);
  }
}

// Of the dataset that was made anew the values are not looked at: their type is another one.
void compare_objects(hid_t from, hid_t to, const std::string& rewritten, const std::string& name,
                     const std::string& where) {
  const Hid a = hdf5_own(H5Oopen(from, name.c_str(), H5P_DEFAULT), &H5Oclose, ErrorClass::kIo, "open " + where);
  const Hid b = hdf5_own(H5Oopen(to, name.c_str(), H5P_DEFAULT), &H5Oclose, ErrorClass::kIo, "read back " + where);
  const H5I_type_t kind = H5Iget_type(a.get());
  if (kind != H5Iget_type(b.get()) || (kind == H5I_DATATYPE && H5Tequal(a.get(), b.get()) <= 0)) {
    hdf5_fail_comparison(where, "the kind of object");
  }
  if (kind == H5I_DATASET && name != rewritten) {
    hdf5_require_same_dataset(a.get(), b.get(), where);
  }
  compare_attributes(a.get(), b.get(), where);
}

}  // namespace

bool hdf5_refers_to_its_file(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_VLEN:
    case H5T_REFERENCE:
      return true;
    case H5T_STRING:
      return H5Tis_variable_str(type) > 0;
    case H5T_ARRAY:
      return hdf5_refers_to_its_file(Hid(H5Tget_super(type), &H5Tclose).get());
    case H5T_COMPOUND:
      for (int i = 0; i < H5Tget_nmembers(type); ++i) {
        if (hdf5_refers_to_its_file(Hid(H5Tget_member_type(type, static_cast<unsigned>(i)), &H5Tclose).get())) {
          return true;
        }
      }
      return false;
    default:
      return false;
  }
}

bool hdf5_has_values_elsewhere(hid_t dataset) {
  const Hid creation(H5Dget_create_plist(dataset), &H5Pclose);
  return H5Pget_layout(creation.get()) == H5D_VIRTUAL || H5Pget_external_count(creation.get()) > 0;
}

bool hdf5_is_never_written(hid_t dataset) {
  const Hid creation(H5Dget_create_plist(dataset), &H5Pclose);
  return H5Pget_layout(creation.get()) == H5D_CONTIGUOUS && H5Pget_external_count(creation.get()) == 0 &&
         H5Dget_storage_size(dataset) == 0;
}

void hdf5_for_each_block(hid_t dataset, hid_t type, const std::string& doing, const Hdf5BlockOfValues& function) {
  const Hid space(H5Dget_space(dataset), &H5Sclose);
  for (const Box& box : boxes_of(dataset, type, space.get())) {
    if (!box.extents.empty()) {
      H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, box.start.data(), nullptr, box.extents.data(), nullptr);
    }
    const auto count = static_cast<hsize_t>(H5Sget_select_npoints(space.get()));
    const Hid memory(H5Screate_simple(1, &count, nullptr), &H5Sclose);
    std::vector<char> values(count * H5Tget_size(type));
    hdf5_check(H5Dread(dataset, type, memory.get(), space.get(), H5P_DEFAULT, values.data()), ErrorClass::kIo, doing);
    function(memory.get(), space.get(), values.data(), count);
    if (hdf5_refers_to_its_file(type)) {
      H5Dvlen_reclaim(type, memory.get(), H5P_DEFAULT, values.data());
    }
  }
}

bool hdf5_copy_dataset(hid_t from, hid_t to, const std::string& name, const std::string& doing) {
  const Hid link(H5Pcreate(H5P_LINK_CREATE), &H5Pclose);
  H5Pset_create_intermediate_group(link.get(), 1);
  if (is_copied_whole(from)) {
    require_room(to, H5Dget_storage_size(from), doing);
    const Hid options(H5Pcreate(H5P_OBJECT_COPY), &H5Pclose);
    H5Pset_copy_object(options.get(), H5O_COPY_WITHOUT_ATTR_FLAG);
    hdf5_check(H5Ocopy(from, ".", to, name.c_str(), options.get(), link.get()), ErrorClass::kIo, doing);
    return true;
  }
  const Hid stored(H5Dget_type(from), &H5Tclose);
  const Hid type(H5Tcopy(stored.get()), &H5Tclose);  // of the file's own types a transient copy
  const Hid creation = creation_like(from, type.get(), doing);
  static_cast<void>(hdf5_own(
      H5Dcreate2(to, name.c_str(), type.get(), space_like(from).get(), link.get(), creation.get(), H5P_DEFAULT),
      &H5Dclose, ErrorClass::kIo, doing));
  return false;
}

void hdf5_copy_values(hid_t from, hid_t to, const std::string& doing, const Hdf5ValueChange& change) {
  const Hid type(H5Dget_type(to), &H5Tclose);
  const size_t item = H5Tget_size(type.get());
  hdf5_for_each_block(from, type.get(), doing, [&](hid_t memory, hid_t selected, char* values, size_t number) {
    for (size_t i = 0; change && i < number; ++i) {
      change(type.get(), values + i * item);
    }
    hdf5_check(H5Dwrite(to, type.get(), memory, selected, H5P_DEFAULT, values), ErrorClass::kIo, doing);
  });
}

void verify_hdf5_copy(const std::string& from, const std::string& to, const Hdf5Rewrite& rewrite) {
  const Hdf5CrashGuard guard(to, Hdf5CrashGuard::kNoLimit);
  const Hid a = hdf5_open_file(from);
  const Hid b = hdf5_open_file(to);
  const NamedLinks found = links_of(a.get(), from, rewrite.dataset);
  if (found.links != links_of(b.get(), to, rewrite.dataset).links) {
    hdf5_fail_comparison(to, "the list of its objects");
  }
  compare_attributes(a.get(), b.get(), to);
  for (const Link& link : found.links) {
    const std::string where = str(to, ": '", link.name, "'");
    if (link.is_first()) {
      compare_objects(a.get(), b.get(), found.rewritten, link.name, where);
    } else if (link.type != H5L_TYPE_HARD &&
               link_value(a.get(), link.name, "read " + where) != link_value(b.get(), link.name, "read " + where)) {
      hdf5_fail_comparison(where, "where the link leads");
    }
  }
}

void copy_hdf5_structure(const std::string& from, const std::string& to, const Hdf5Rewrite& rewrite) {
  const Hdf5CrashGuard guard(from, Hdf5CrashGuard::kNoLimit);  // there may be much to copy
  Copy(from, to, rewrite).run();
}

}  // namespace vit_hybrid::data
