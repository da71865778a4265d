// Lists of names, counts of channels, and the inputs that are made rather than read.
#include "data/datasets/field_roles.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>

#include "data/datasets/field_catalogue.h"
#include "data/datasets/static_fields.h"
#include "data/datasets/year_files.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

// "z:500:850" are two channels.
int64_t count_channels(const std::string& list) {
  const std::vector<std::string> names = names_in(list);
  return std::accumulate(names.begin(), names.end(), int64_t{0}, [](int64_t sum, const std::string& name) {
    return sum + std::max<int64_t>(std::count(name.begin(), name.end(), ':'), 1);
  });
}

std::string joined_lists(const std::vector<std::string>& lists) {
  std::vector<std::string> given;
  std::copy_if(lists.begin(), lists.end(), std::back_inserter(given), [](const auto& list) { return !list.empty(); });
  return join(given, ",");
}

std::vector<Forcing> computed_in(const std::string& list) {
  std::vector<Forcing> found;
  for (const std::string& name : names_in(list)) {
    if (const auto forcing = forcing_named(name)) {
      found.push_back(*forcing);
    }
  }
  return found;
}

// The one of a place alone that is called so.
std::optional<Forcing> static_forcing(const std::string& name) {
  const auto forcing = forcing_named(name);
  if (forcing && depends_on_time(*forcing)) {
    throw Error(ErrorClass::kUsage, str("--static has '", shown(name), "', which changes with time"),
                "give it to --forcings");
  }
  return forcing;
}

int64_t channels_of_static(const std::string& name) {
  return static_forcing(name) ? 1 : num_static_channels(name);
}

int64_t count_static_channels(const std::vector<std::string>& names) {
  return std::accumulate(names.begin(), names.end(), int64_t{0},
                         [](int64_t sum, const std::string& name) { return sum + channels_of_static(name); });
}

// The files that are one.
std::vector<std::string> paths_of(const RowFile& file) {
  std::vector<std::string> paths = {file.path};
  for (const ArrayLayout& array : file.layout.arrays) {
    if (std::find(paths.begin(), paths.end(), file.path_of(array)) == paths.end()) {
      paths.push_back(file.path_of(array));
    }
  }
  return paths;
}

// [channels, H, W], in the order of names. On one process alone.
at::Tensor make_statics(const std::vector<std::string>& names, const std::vector<std::string>& paths,
                        const std::string& variables, const Grid& grid, const std::vector<int64_t>& shape) {
  std::vector<std::string> of_files = names;
  std::erase_if(of_files, [](const std::string& name) { return static_forcing(name).has_value(); });
  const at::Tensor read =
      of_files.empty() ? at::Tensor() : read_static_fields(paths, of_files, variables, grid, shape).values;
  const at::Tensor all = at::empty({count_static_channels(names), shape[0], shape[1]}, at::kFloat);
  int64_t to = 0, from = 0;
  for (const std::string& name : names) {
    const int64_t count = channels_of_static(name);
    if (const auto forcing = static_forcing(name)) {
      compute_forcing(*forcing, 0.0, "standard", grid, {0, shape[0]}, all[to].data_ptr<float>());
    } else {
      all.narrow(0, to, count).copy_(read.narrow(0, from, count));
      from += count;
    }
    to += count;
  }
  return all;
}

}  // namespace

std::string forcings_of_data(const FieldRoles& roles) {
  std::vector<std::string> names = names_in(roles.forcings);
  std::erase_if(names, [](const std::string& name) { return forcing_named(name).has_value(); });
  return join(names, ",");
}

std::string row_channels(const FieldRoles& roles, const std::string& channels) {
  const std::string forcings = forcings_of_data(roles);
  if (channels.empty() && (!forcings.empty() || !roles.diagnostics.empty())) {
    throw Error(ErrorClass::kUsage,
                forcings.empty() ? str("--diagnostics ", shown(roles.diagnostics), " are given without --channels")
                                 : str("--forcings has ", shown(forcings), ", of the data, without --channels"),
                str("name with --channels what is both taken and predicted",
                    forcings.empty() ? "" : str("; computed are ", join(forcing_names()))));
  }
  return joined_lists({forcings, channels, roles.diagnostics});
}

std::string roles_text(const FieldRoles& roles) {
  std::vector<std::string> parts;
  if (roles.history > 1) {
    parts.push_back(str("history ", roles.history));
  }
  const auto add = [&](const char* what, const std::string& list) {
    std::vector<std::string> names;
    for (const std::string& name : names_in(list)) {
      const auto forcing = forcing_named(name);
      const size_t colon = std::min(name.find(':'), name.size());
      size_t begin = colon;
      do {  // "z:500:850" are z500 and z850
        const size_t end = std::min(name.find(':', begin + 1), name.size());
        names.push_back(forcing ? forcing_name(*forcing)
                                : canonical_channel(name.substr(0, colon) + name.substr(begin, end - begin)));
        begin = end;
      } while (begin < name.size());
    }
    if (!names.empty()) {
      parts.push_back(str(what, " ", join(names, ",")));
    }
  };
  add("forcings", roles.forcings);
  add("diagnostics", roles.diagnostics);
  add("static", roles.statics);
  return join(parts, ", ");
}

SampleChannels sample_channels(const FieldRoles& roles, int64_t row_channels) {
  SampleChannels channels;
  channels.history = roles.history;
  channels.forcings = count_channels(forcings_of_data(roles));
  channels.diagnostic = count_channels(roles.diagnostics);
  channels.prognostic = row_channels - channels.forcings - channels.diagnostic;
  channels.computed = std::ssize(computed_in(roles.forcings));
  channels.statics = count_static_channels(names_in(roles.statics));
  if (channels.prognostic < 1) {
    throw Error(ErrorClass::kUsage,
                str("of ", counted(row_channels, "channel"), " of the data ", channels.forcings, " are forcings and ",
                    channels.diagnostic, " diagnostics: none is both taken and predicted"),
                "name these with --channels");
  }
  return channels;
}

int64_t num_row_channels(const FieldRoles& roles, int64_t outputs) {
  return count_channels(forcings_of_data(roles)) + outputs;
}

Normalization part_of(const Normalization& normalization, Range channels) {
  const auto part = [&](const std::vector<double>& values) {
    return std::vector<double>(values.begin() + channels.begin, values.begin() + channels.end);
  };
  return {part(normalization.mean), part(normalization.std)};
}

DerivedInputs::DerivedInputs(const comm::MpiGroup& group, const FieldRoles& roles, const std::string& variables,
                             const std::vector<RowFile>& files, const Grid& grid, const std::vector<int64_t>& shape)
    : computed_(computed_in(roles.forcings)), grid_(grid), width_(shape[1]) {
  const std::vector<std::string> statics = names_in(roles.statics);
  const bool has_points = !grid.latitudes.empty() && !grid.longitudes.empty();
  comm::agreed(group, [&] {
    const bool needs_points = !computed_.empty() || std::any_of(statics.begin(), statics.end(), [](const auto& name) {
      return static_forcing(name).has_value();
    });
    if (needs_points && !has_points) {
      throw Error(ErrorClass::kBadData,
                  str(files.front().path, " has ", grid_text(grid), ", on which ",
                      computed_.empty() ? statics.front() : forcing_name(computed_.front()), " depends"),
                  "latitudes and longitudes in degrees, as dimension scales or datasets of these names, are needed");
    }
    const auto changing = std::find_if(computed_.begin(), computed_.end(),
                                       [](Forcing forcing) { return data::depends_on_time(forcing); });
    for (const RowFile& file : files) {
      if (changing != computed_.end() && file.layout.times.kind != TimeAxis::Kind::kDates) {
        throw Error(ErrorClass::kBadData,
                    str(file.path, " has no dates, on which the forcing ", forcing_name(*changing), " depends"),
                    "a coordinate of time with CF units (`hours since 1900-01-01`) is needed");
      }
    }
  });
  if (depends_on_time()) {
    calendar_ = files.front().layout.times.calendar;
    seconds_ = seconds_of_rows(group, files);
  }
  if (!statics.empty()) {
    statics_ = at::empty({count_static_channels(statics), shape[0], width_}, at::kFloat);
    comm::agreed_on_rank_0(group, [&] {
      const std::vector<std::string> paths =
          roles.static_data.empty() ? paths_of(files.front()) : std::vector{roles.static_data};
      statics_.copy_(make_statics(statics, paths, variables, grid, shape));
    });
    group.broadcast(statics_.data_ptr(), static_cast<int64_t>(statics_.nbytes()), 0);
  }
}

bool DerivedInputs::depends_on_time() const {
  return std::any_of(computed_.begin(), computed_.end(), [](Forcing f) { return data::depends_on_time(f); });
}

double DerivedInputs::seconds_of(int64_t row) const {
  return seconds_.empty() ? 0.0 : seconds_[static_cast<size_t>(row)];
}

void DerivedInputs::compute(double seconds, Range rows, float* to) const {
  for (const Forcing forcing : computed_) {
    compute_forcing(forcing, seconds, calendar_, grid_, rows, to);
    to += rows.size() * width_;
  }
}

void DerivedInputs::write(double seconds, Range rows, float* to) const {
  compute(seconds, rows, to);
  to += num_computed() * rows.size() * width_;
  for (int64_t channel = 0; statics_.defined() && channel < statics_.size(0); ++channel) {
    const float* from = statics_.const_data_ptr<float>() + (channel * statics_.size(1) + rows.begin) * width_;
    to = std::copy_n(from, rows.size() * width_, to);
  }
}

}  // namespace vit_hybrid::data
