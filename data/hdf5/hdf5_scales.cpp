// The attributes of the HDF5 dimension scale specification, read and written here because HDF5's own calls for them are
// in a second library (hdf5_hl), of which every build would need the parallel variant; and scales of texts.
#include "data/hdf5/hdf5_scales.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "data/hdf5/hdf5_attributes.h"
#include "data/hdf5/hdf5_compare.h"
#include "data/hdf5/hdf5_copy.h"
#include "data/hdf5/hdf5_crash_guard.h"
#include "data/hdf5/hdf5_open.h"
#include "data/hdf5/hdf5_virtual.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

constexpr char kScaleClass[] = "DIMENSION_SCALE";
constexpr int64_t kMostScaleBytes = int64_t{1} << 14;  // of references to scales: 2,000

std::string last_part(const std::string& name) {
  return name.substr(name.rfind('/') + 1);
}

size_t num_dims_of(hid_t dataset) {
  const Hid space(H5Dget_space(dataset), &H5Sclose);
  return hdf5_shape(space.get()).size();
}

std::vector<std::string> labels_of(hid_t dataset, size_t num_dims) {
  const std::vector<std::string> labels(num_dims);
  if (H5Aexists(dataset, kHdf5DimLabels) <= 0) {
    return labels;
  }
  const Hid attribute(H5Aopen(dataset, kHdf5DimLabels, H5P_DEFAULT), &H5Aclose);
  const auto texts = hdf5_texts(attribute.get(), str("attribute '", kHdf5DimLabels, "'"));
  return texts.size() == num_dims ? texts : labels;
}

// An element of kHdf5DatasetList.
struct ScaleUse {
  hobj_ref_t dataset;
  int dim;
  int padding = 0;  // is written too: the same data make the same file
};

Hid scale_use_type() {
  Hid type(H5Tcreate(H5T_COMPOUND, sizeof(ScaleUse)), &H5Tclose);
  H5Tinsert(type.get(), "dataset", HOFFSET(ScaleUse, dataset), H5T_STD_REF_OBJ);
  H5Tinsert(type.get(), "dimension", HOFFSET(ScaleUse, dim), H5T_NATIVE_INT);
  return type;
}

hobj_ref_t reference_to(hid_t file, const std::string& name, const std::string& doing) {
  hobj_ref_t reference = 0;
  hdf5_check(H5Rcreate(&reference, file, name.c_str(), H5R_OBJECT, -1), ErrorClass::kIo, doing);
  return reference;
}

// As the specification has it: of 16 bytes.
void make_scale(hid_t dataset, const std::string& doing) {
  const Hid type(H5Tcopy(H5T_C_S1), &H5Tclose);
  H5Tset_size(type.get(), sizeof(kScaleClass));
  const Hid space(H5Screate(H5S_SCALAR), &H5Sclose);
  const Hid attribute = hdf5_own(H5Acreate2(dataset, "CLASS", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                                 &H5Aclose, ErrorClass::kIo, doing);
  hdf5_check(H5Awrite(attribute.get(), type.get(), kScaleClass), ErrorClass::kIo, doing);
}

void add_list(hid_t object, const char* name, hid_t type, size_t length, const void* elements,
              const std::string& doing) {
  const hsize_t count = length;
  const Hid space(H5Screate_simple(1, &count, nullptr), &H5Sclose);
  const Hid attribute = hdf5_own(H5Acreate2(object, name, type, space.get(), H5P_DEFAULT, H5P_DEFAULT), &H5Aclose,
                                 ErrorClass::kIo, doing);
  hdf5_check(H5Awrite(attribute.get(), type, elements), ErrorClass::kIo, doing);
}

static_assert(std::numeric_limits<long double>::digits >= 64, "a long double holds every 64-bit integer");

using Values = std::vector<long double>;

// Of a value in the file beside the one that was meant.
long double rounding_of(hid_t type, const Values& values) {
  if (H5Tget_class(type) == H5T_INTEGER) {
    return 0;
  }
  size_t fraction_bits = 0;
  size_t ignored = 0;
  H5Tget_fields(type, &ignored, &ignored, &ignored, &ignored, &fraction_bits);
  long double largest = 0;
  for (const long double value : values) {
    largest = std::max(largest, std::fabs(value));
  }
  return std::ldexp(largest, -static_cast<int>(fraction_bits));
}

// The mean is nearer to what was meant than the last two values, which are rounded.
long double spacing_of(const Values& times) {
  return (times.back() - times.front()) / static_cast<long double>(times.size() - 1);
}

bool is_even(const Values& times, long double rounding) {
  const long double spacing = spacing_of(times);
  return std::adjacent_find(times.begin(), times.end(), [&](long double before, long double after) {
           return !(std::fabs(after - before - spacing) <= 2 * rounding);  // also where one is no number
         }) == times.end();
}

bool holds(hid_t type, const Values& values, long double rounding) {
  if (H5Tget_size(type) > sizeof(long double)) {
    return false;
  }
  Values stored = values;
  if (H5Tconvert(H5T_NATIVE_LDOUBLE, type, stored.size(), stored.data(), nullptr, H5P_DEFAULT) < 0 ||
      H5Tconvert(type, H5T_NATIVE_LDOUBLE, stored.size(), stored.data(), nullptr, H5P_DEFAULT) < 0) {
    return false;
  }
  return std::equal(values.begin(), values.end(), stored.begin(),
                    [&](long double a, long double b) { return std::fabs(a - b) <= rounding; });
}

struct Times {
  Values values;        // 64 bits of precision: integers and double precision exactly
  std::string why_not;  // where there are no values: the reason, "its values are no numbers"
};

Times none(const std::string& why_not) {
  return {{}, why_not};
}

bool has_attribute(hid_t object, const std::string& name) {
  return H5Aexists(object, name.c_str()) > 0;
}

// Of a list that cannot be read too.
bool has_no_scales(const std::vector<Hid>& of_dim) {
  return of_dim.empty();
}

bool refers_to_objects(hid_t object, const std::string& attribute) {
  const Hid opened(H5Aopen(object, attribute.c_str(), H5P_DEFAULT), &H5Aclose);
  const Hid type(H5Aget_type(opened.get()), &H5Tclose);
  return H5Tdetect_class(type.get(), H5T_REFERENCE) > 0;
}

// Makes the datasets that are named for each dim scales, where they are none, and ties them to those that have the
// dims, all of one file. None of them is tied to anything yet.
void attach_scales(hid_t file, const std::vector<Hdf5Scaled>& datasets, const std::string& doing) {
  std::map<std::string, std::vector<ScaleUse>> uses;  // of each scale
  for (const auto& [dataset, scales] : datasets) {
    for (size_t d = 0; d < scales.size(); ++d) {
      for (const std::string& name : scales[d]) {
        uses[name].push_back({reference_to(file, dataset, doing), static_cast<int>(d)});
      }
    }
  }
  for (const auto& [name, of_scale] : uses) {
    const Hid scale = hdf5_own(H5Dopen2(file, name.c_str(), H5P_DEFAULT), &H5Dclose, ErrorClass::kIo, doing);
    if (H5Aexists(scale.get(), "CLASS") <= 0) {
      make_scale(scale.get(), doing);
    }
    add_list(scale.get(), kHdf5DatasetList, scale_use_type().get(), of_scale.size(), of_scale.data(), doing);
  }
  for (const auto& [dataset, scales] : datasets) {
    std::vector<std::vector<hobj_ref_t>> references(scales.size());
    std::vector<hvl_t> lists;
    for (size_t d = 0; d < scales.size(); ++d) {
      for (const std::string& name : scales[d]) {
        references[d].push_back(reference_to(file, name, doing));
      }
      lists.push_back({references[d].size(), references[d].data()});
    }
    const bool has_any = std::any_of(scales.begin(), scales.end(), [](const auto& names) { return !names.empty(); });
    const Hid opened = hdf5_own(H5Dopen2(file, dataset.c_str(), H5P_DEFAULT), &H5Dclose, ErrorClass::kIo, doing);
    const Hid type(H5Tvlen_create(H5T_STD_REF_OBJ), &H5Tclose);
    if (has_any) {
      add_list(opened.get(), kHdf5ScaleList, type.get(), lists.size(), lists.data(), doing);
    }
  }
}

// The times of the rows of `copy` from a scale of a dim of `num_times`; those behind the run go on with its spacing,
// where that is one.
Times times_of(hid_t scale, int64_t num_times, const Hdf5ScaleCopy& copy) {
  const Hid type(H5Dget_type(scale), &H5Tclose);
  const H5T_class_t kind = H5Tget_class(type.get());
  if (kind != H5T_INTEGER && kind != H5T_FLOAT) {
    return none("its values are no numbers");
  }
  const Hid space(H5Dget_space(scale), &H5Sclose);
  if (const auto shape = hdf5_shape(space.get()); shape != std::vector<int64_t>{num_times}) {
    return none(str("its shape is (", join(shape), "), there are ", num_times, " times"));
  }
  Values all(static_cast<size_t>(num_times));
  if (H5Dread(scale, H5T_NATIVE_LDOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data()) < 0) {
    return none("it cannot be read: " + hdf5_reason());
  }
  const int64_t end = std::min(copy.run.end, num_times);
  const Values known(all.begin() + copy.run.begin, all.begin() + end);
  const long double rounding = rounding_of(type.get(), known);
  const bool has_spacing = known.size() > 1 && is_even(known, rounding);
  Times times;
  Values more;
  for (int64_t i = 0; i < copy.num_rows; ++i) {
    const int64_t row = copy.first_row + i * copy.stride;
    if (row < end) {
      times.values.push_back(all[static_cast<size_t>(row)]);
    } else if (has_spacing) {
      more.push_back(known.back() + spacing_of(known) * static_cast<long double>(row - end + 1));
    } else {
      return none(str("the forecast goes beyond the ",
                      end < num_times ? "next gap in the file's times" : "file's last time", ", and its ", known.size(),
                      known.size() == 1 ? " value has no spacing" : " values are not evenly spaced"));
    }
  }
  if (!more.empty() && !holds(type.get(), more, std::max(rounding, rounding_of(type.get(), more)))) {
    return none(str("its type (", hdf5_type_name(type.get()), ") does not hold the times behind the file's last one"));
  }
  times.values.insert(times.values.end(), more.begin(), more.end());
  return times;
}

class ScaleCopy {
 public:
  explicit ScaleCopy(const Hdf5ScaleCopy& asked)
      : asked_(asked),
        from_(hdf5_open_file(asked.from)),
        source_(hdf5_open_dataset(from_.get(), asked.from, asked.dataset)) {}

  std::vector<std::string> run() {
    if (!has_attribute(source_.get(), kHdf5ScaleList) && !has_attribute(source_.get(), kHdf5DimLabels)) {
      return {};
    }
    open_target();
    copy_attributes(source_.get(), target_.get(), str("dataset '", asked_.dataset, "'"));
    const auto scales = hdf5_attached_scales(source_.get());
    if (has_attribute(source_.get(), kHdf5ScaleList) && std::all_of(scales.begin(), scales.end(), has_no_scales)) {
      leave_out("the dimension scales", "their list cannot be read");
    }
    std::vector<std::vector<std::string>> attached;
    for (size_t dim = 0; dim < scales.size(); ++dim) {
      auto& names = attached.emplace_back();
      for (const Hid& scale : scales[dim]) {
        const std::string name = hdf5_object_name(scale.get());
        if (bring(scale.get(), name, dim == 0)) {
          names.push_back(name);
        }
      }
    }
    attach_scales(to_.get(), {{asked_.dataset, attached}}, what("attach the scales"));
    check(target_.close() && to_.close() ? 0 : -1, "close the dataset");
    return std::move(left_out_);
  }

 private:
  std::string what(const std::string& doing) const { return str(doing, " of ", asked_.from, " for ", asked_.to); }
  void check(herr_t status, const std::string& doing) const { hdf5_check(status, ErrorClass::kIo, what(doing)); }
  Hid own(hid_t id, Hid::Close close, const std::string& doing) const {
    return hdf5_own(id, close, ErrorClass::kIo, what(doing));
  }
  bool leave_out(const std::string& thing, const std::string& reason) {
    left_out_.push_back(str(thing, " of ", asked_.from, " cannot be carried over: ", reason));
    return false;
  }

  // Calls `function()`; what the source does not give is left out.
  template <class Function>
  bool try_to(Function&& function) {
    try {
      function();
      return true;
    } catch (const Error& error) {
      left_out_.push_back(error.message());
      return false;
    }
  }

  void open_target() {
    to_ = own(H5Fopen(asked_.to.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), &H5Fclose, "carry over the scales");
    target_ = own(H5Dopen2(to_.get(), asked_.dataset.c_str(), H5P_DEFAULT), &H5Dclose, "carry over the scales");
  }

  // Those that `to` has not, but for the lists of scales and datasets, which are made anew.
  void copy_attributes(hid_t from, hid_t to, const std::string& object) {
    std::vector<std::string> names;
    try_to([&] { names = hdf5_attribute_names(from, what("list the attributes of " + object)); });
    for (const std::string& name : names) {
      const std::string attribute = str("attribute '", name, "' of ", object);
      if (name == kHdf5ScaleList || name == kHdf5DatasetList || has_attribute(to, name)) {
        continue;
      }
      if (refers_to_objects(from, name)) {
        leave_out(attribute, "it refers to objects of its file");
      } else {
        try_to([&] { hdf5_copy_attribute(from, to, name, what("copy " + attribute)); });
      }
    }
  }

  // Whether the scale is in the new file.
  bool bring(hid_t scale, const std::string& name, bool is_time) {
    const std::string thing = str("scale '", name.substr(name.starts_with('/') ? 1 : 0), "'");
    if (const auto made = made_.find(name); made != made_.end()) {
      return made->second == is_time || leave_out(thing, "it belongs to the times and to another dim");
    }
    if (name.empty()) {
      return leave_out("a scale", "it has no name");
    }
    if (hdf5_has_values_elsewhere(scale)) {
      return leave_out(thing, "its values are in another file");
    }
    if (const Hid type(H5Dget_type(scale), &H5Tclose); H5Tdetect_class(type.get(), H5T_REFERENCE) > 0) {
      return leave_out(thing, "it refers to objects of its file");
    }
    if (!is_time) {
      if (!try_to([&] { copy_whole(scale, name, thing); })) {
        return false;
      }
    } else if (const std::string why_not = make_times(scale, name, thing); !why_not.empty()) {
      return leave_out(thing, why_not);
    }
    made_[name] = is_time;
    const Hid copy = own(H5Dopen2(to_.get(), name.c_str(), H5P_DEFAULT), &H5Dclose, "open " + thing);
    copy_attributes(scale, copy.get(), thing);
    return true;
  }

  static Hid with_groups() {
    Hid link(H5Pcreate(H5P_LINK_CREATE), &H5Pclose);
    H5Pset_create_intermediate_group(link.get(), 1);
    return link;
  }

  void copy_whole(hid_t scale, const std::string& name, const std::string& thing) const {
    const std::string doing = what("copy " + thing);
    if (!hdf5_copy_dataset(scale, to_.get(), name, doing)) {
      const Hid copy = own(H5Dopen2(to_.get(), name.c_str(), H5P_DEFAULT), &H5Dclose, "open " + thing);
      hdf5_copy_values(scale, copy.get(), doing);
    }
  }

  // Empty, or why it cannot be done.
  std::string make_times(hid_t scale, const std::string& name, const std::string& thing) const {
    const Hid stored(H5Dget_type(scale), &H5Tclose);
    const Hid type(H5Tcopy(stored.get()), &H5Tclose);  // of the file's own types a transient copy
    const Hid source_space(H5Dget_space(source_.get()), &H5Sclose);
    const Times times = times_of(scale, hdf5_shape(source_space.get()).front(), asked_);
    if (!times.why_not.empty()) {
      return times.why_not;
    }
    const hsize_t count = times.values.size();
    const Hid space(H5Screate_simple(1, &count, nullptr), &H5Sclose);
    const Hid creation(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
    H5Pset_obj_track_times(creation.get(), false);  // the same data make the same file
    const Hid made = own(
        H5Dcreate2(to_.get(), name.c_str(), type.get(), space.get(), with_groups().get(), creation.get(), H5P_DEFAULT),
        &H5Dclose, "make " + thing);
    check(H5Dwrite(made.get(), H5T_NATIVE_LDOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, times.values.data()),
          "write " + thing);
    return {};
  }

  const Hdf5ScaleCopy& asked_;
  Hid from_;
  Hid source_;
  Hid to_;
  Hid target_;
  std::map<std::string, bool> made_;  // scales of the new file; whether they are of the times
  std::vector<std::string> left_out_;
};

// Of the values as the stored type holds them.
bool has_times(hid_t scale, std::vector<long double> expected) {
  const Hid type(H5Dget_type(scale), &H5Tclose);
  std::vector<long double> found(expected.size());
  return H5Tget_size(type.get()) <= sizeof(long double) &&
         H5Tconvert(H5T_NATIVE_LDOUBLE, type.get(), expected.size(), expected.data(), nullptr, H5P_DEFAULT) >= 0 &&
         H5Tconvert(type.get(), H5T_NATIVE_LDOUBLE, expected.size(), expected.data(), nullptr, H5P_DEFAULT) >= 0 &&
         H5Dread(scale, H5T_NATIVE_LDOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, found.data()) >= 0 && found == expected;
}

void compare_attributes(hid_t from, hid_t to, const std::set<std::string>& others, const std::string& where) {
  for (const std::string& name : hdf5_attribute_names(to, "list the attributes of " + where)) {
    if (!others.contains(name) && has_attribute(from, name)) {
      hdf5_require_same_attribute(from, to, name, where);
    }
  }
}

}  // namespace

std::string hdf5_object_name(hid_t object) {
  const ssize_t length = H5Iget_name(object, nullptr, 0);
  std::string name(static_cast<size_t>(length > 0 ? length : 0), '\0');
  H5Iget_name(object, name.data(), name.size() + 1);
  return name;
}

std::vector<std::vector<Hid>> hdf5_attached_scales(hid_t dataset) {
  const size_t num_dims = num_dims_of(dataset);
  std::vector<std::vector<Hid>> scales(num_dims);
  if (H5Aexists(dataset, kHdf5ScaleList) <= 0) {
    return scales;
  }
  const Hid attribute(H5Aopen(dataset, kHdf5ScaleList, H5P_DEFAULT), &H5Aclose);
  hdf5_require_few_bytes(attribute.get(), kMostScaleBytes, str("attribute '", kHdf5ScaleList, "'"));
  const Hid type(H5Tvlen_create(H5T_STD_REF_OBJ), &H5Tclose);
  const Hid space(H5Aget_space(attribute.get()), &H5Sclose);
  std::vector<hvl_t> lists(num_dims, hvl_t{0, nullptr});
  if (H5Sget_simple_extent_npoints(space.get()) != static_cast<hssize_t>(num_dims) ||
      H5Aread(attribute.get(), type.get(), lists.data()) < 0) {
    return scales;
  }
  for (size_t d = 0; d < num_dims; ++d) {
    const auto* references = static_cast<const hobj_ref_t*>(lists[d].p);
    for (size_t i = 0; i < lists[d].len; ++i) {
      Hid scale(H5Rdereference2(dataset, H5P_DEFAULT, H5R_OBJECT, references + i), &H5Oclose);
      if (scale && H5Iget_type(scale.get()) == H5I_DATASET) {
        hdf5_check_storage(scale.get(),
                           str(hdf5_file_name(scale.get()), ": scale '", hdf5_object_name(scale.get()), "'"));
        scales[d].push_back(std::move(scale));
      }
    }
  }
  H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, lists.data());
  return scales;
}

std::vector<std::string> hdf5_dimension_names(hid_t dataset) {
  const size_t num_dims = num_dims_of(dataset);
  std::vector<std::string> names = labels_of(dataset, num_dims);
  const auto scales = hdf5_attached_scales(dataset);
  for (size_t d = 0; d < num_dims; ++d) {
    if (!scales[d].empty()) {
      names[d] = last_part(hdf5_object_name(scales[d].front().get()));
    }
  }
  H5Eclear2(H5E_DEFAULT);
  return names;
}

std::string hdf5_scale_texts(hid_t dataset, size_t dim) {
  const size_t num_dims = num_dims_of(dataset);
  const auto scales = hdf5_attached_scales(dataset);
  std::string joined;
  for (size_t i = 0; dim < num_dims && i < scales[dim].size() && joined.empty(); ++i) {
    const hid_t scale = scales[dim][i].get();
    const std::string what = str("scale '", shown(hdf5_object_name(scale)), "'");
    if (const Hid type(H5Dget_type(scale), &H5Tclose); H5Tget_class(type.get()) == H5T_STRING) {
      hdf5_require_parts(scale, str(hdf5_file_name(scale), ": ", what));
    }
    joined = join(hdf5_texts(scale, what), ",");
  }
  H5Eclear2(H5E_DEFAULT);
  return joined;
}

void verify_hdf5_scales(const Hdf5ScaleCopy& copy) {
  const Hdf5CrashGuard guard(copy.to);
  const Hid from = hdf5_open_file(copy.from);
  const Hid to = hdf5_open_file(copy.to);
  const Hid source = hdf5_open_dataset(from.get(), copy.from, copy.dataset);
  const Hid target = hdf5_open_dataset(to.get(), copy.to, copy.dataset);
  // The lists are made anew, the program has its own names and units of channels.
  const std::set<std::string> own = {kHdf5ScaleList, kHdf5DatasetList, "channels", "units"};
  compare_attributes(source.get(), target.get(), own, str(copy.to, ": dataset '", copy.dataset, "'"));
  const Hid space(H5Dget_space(source.get()), &H5Sclose);
  const auto scales = hdf5_attached_scales(target.get());
  if (has_attribute(target.get(), kHdf5ScaleList) && std::all_of(scales.begin(), scales.end(), has_no_scales)) {
    hdf5_fail_comparison(str(copy.to, ": dataset '", copy.dataset, "'"), "the list of its scales");
  }
  for (size_t dim = 0; dim < scales.size(); ++dim) {
    for (const Hid& scale : scales[dim]) {
      const std::string name = hdf5_object_name(scale.get());
      const std::string where = str(copy.to, ": scale '", name, "'");
      const Hid old = hdf5_open_dataset(from.get(), copy.from, name);
      compare_attributes(old.get(), scale.get(), {kHdf5DatasetList}, where);
      if (dim > 0) {
        hdf5_require_same_dataset(old.get(), scale.get(), where);
      } else if (!has_times(scale.get(), times_of(old.get(), hdf5_shape(space.get()).front(), copy).values)) {
        hdf5_fail_comparison(where, "its times");
      }
    }
  }
}

void attach_hdf5_scales(const std::string& path, const std::vector<Hdf5Scaled>& datasets) {
  const std::string doing = str("attach the scales of ", path);
  Hid file = hdf5_own(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), &H5Fclose, ErrorClass::kIo, doing);
  attach_scales(file.get(), datasets, doing);
  hdf5_check(file.close() ? 0 : -1, ErrorClass::kIo, doing);
}

std::vector<std::string> copy_hdf5_scales(const Hdf5ScaleCopy& copy) {
  const Hdf5CrashGuard guard(copy.from);
  return ScaleCopy(copy).run();
}

}  // namespace vit_hybrid::data
