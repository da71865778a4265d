// Scales and attributes of one dataset, one after the other.
#include "data/hdf5/hdf5_scale_copy.h"

#include <algorithm>
#include <map>
#include <set>

#include "data/hdf5/hdf5_attribute_copy.h"
#include "data/hdf5/hdf5_compare.h"
#include "data/hdf5/hdf5_crash_guard.h"
#include "data/hdf5/hdf5_dataset_copy.h"
#include "data/hdf5/hdf5_open.h"
#include "data/hdf5/hdf5_scale_times.h"
#include "data/hdf5/hdf5_scales.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

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
    hdf5_attach_scales(target_.get(), attached, what("attach the scales"));
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
    const Hdf5Times times =
        hdf5_times(scale, hdf5_shape(source_space.get()).front(), asked_.first_row, asked_.num_rows);
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
      } else if (!has_times(
                     scale.get(),
                     hdf5_times(old.get(), hdf5_shape(space.get()).front(), copy.first_row, copy.num_rows).values)) {
        hdf5_fail_comparison(where, "its times");
      }
    }
  }
}

std::vector<std::string> copy_hdf5_scales(const Hdf5ScaleCopy& copy) {
  const Hdf5CrashGuard guard(copy.from);
  return ScaleCopy(copy).run();
}

}  // namespace vit_hybrid::data
