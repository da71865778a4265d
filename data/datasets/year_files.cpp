// Listing of year files, the arithmetic of pairs, and the names of channels.
#include "data/datasets/year_files.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <string_view>
#include <system_error>
#include <utility>

#include "data/datasets/field_catalogue.h"
#include "data/zarr/zarr_metadata.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

namespace fs = std::filesystem;

constexpr size_t kYearLength = 4;
constexpr const char* kEra5Channels =
    "u10,v10,t2m,sp,msl,t850,u1000,v1000,z1000,u850,v850,z850,u500,v500,z500,t500,z50,r500,r850,tcwv";
constexpr int64_t kNumEra5Channels = 20;

constexpr const char* kDigits = "0123456789";

// The digits at the end of the name, without its extension.
std::string number_of(const std::string& path) {
  const std::string stem = fs::path(path).stem().string();
  const size_t before = stem.find_last_not_of(kDigits);
  return before == stem.npos ? stem : stem.substr(before + 1);
}

bool has_year(const RowFile& file) {
  return number_of(file.path).size() == kYearLength;
}

// The name up to its number.
std::string name_before(const std::string& path) {
  const std::string stem = fs::path(path).stem().string();
  return stem.substr(0, stem.size() - number_of(path).size());
}

bool are_counted(const std::vector<RowFile>& files) {
  const std::string& first = files.front().path;
  return !number_of(first).empty() && std::all_of(files.begin(), files.end(), [&](const RowFile& file) {
    return number_of(file.path).size() == number_of(first).size() && name_before(file.path) == name_before(first);
  });
}

// The first of two files that follow each other of which the second begins before the first has ended.
auto find_overlap(const std::vector<RowFile>& files) {
  return std::adjacent_find(files.begin(), files.end(), [](const RowFile& a, const RowFile& b) {
    const TimeAxis& before = a.layout.times;
    const TimeAxis& after = b.layout.times;
    return before.kind != TimeAxis::Kind::kNone && before.kind == after.kind && before.calendar == after.calendar &&
           !(before.last < after.first);
  });
}

bool have_all(const std::vector<RowFile>& files, TimeAxis::Kind kind) {
  return std::all_of(files.begin(), files.end(), [&](const RowFile& file) {
    return file.layout.times.kind == kind && file.layout.times.calendar == files.front().layout.times.calendar;
  });
}

// Of files whose axes are not all of one kind and calendar.
std::string why_not_by_times(const std::vector<RowFile>& files) {
  const TimeAxis& first = files.front().layout.times;
  std::string why;
  for (const RowFile& file : files) {
    const TimeAxis& other = file.layout.times;
    if (first.kind == TimeAxis::Kind::kNone || other.kind == TimeAxis::Kind::kNone) {
      return "not all have a time axis";
    }
    if (other.kind != first.kind) {
      why = "the time axes of some have units, those of others have none";
    } else if (other.calendar != first.calendar) {
      why = str("their dates are of different calendars, ", first.calendar, " and ", other.calendar);
    }
  }
  return why;
}

void sort_by_begin(std::vector<RowFile>& files) {
  std::stable_sort(files.begin(), files.end(),
                   [](const RowFile& a, const RowFile& b) { return a.layout.times.first < b.layout.times.first; });
}

void sort_by_number(std::vector<RowFile>& files) {
  std::stable_sort(files.begin(), files.end(),
                   [](const RowFile& a, const RowFile& b) { return number_of(a.path) < number_of(b.path); });
  const auto same = std::adjacent_find(files.begin(), files.end(), [](const RowFile& a, const RowFile& b) {
    return number_of(a.path) == number_of(b.path);
  });
  if (same != files.end()) {
    throw Error(ErrorClass::kBadData,
                str("two files of the ", has_year(*same) ? "year " : "number ", number_of(same->path), ": ", same->path,
                    " and ", (same + 1)->path),
                "move one of them out of the folder");
  }
}

void refuse_overlap(const std::vector<RowFile>& files) {
  const auto first = find_overlap(files);
  if (first == files.end() || first->layout.times.kind != TimeAxis::Kind::kDates) {
    return;
  }
  const TimeAxis& a = first->layout.times;
  const TimeAxis& b = (first + 1)->layout.times;
  throw Error(ErrorClass::kBadData,
              str("the times of ", first->path, " (", time_text(a, a.first), " to ", time_text(a, a.last),
                  ") do not all lie before those of ", (first + 1)->path, " (", time_text(b, b.first), " to ",
                  time_text(b, b.last), ")"),
              "each time may be in one file only, and names must not say another order than the times: correct the "
              "files, or move one of them out of the folder");
}

// In small letters, with its point.
std::string small_extension(const std::string& path) {
  std::string extension = fs::path(path).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

// Error(kBadData) for a file that is named as GRIB files are.
void refuse_grib(const std::string& path) {
  if (const std::string extension = small_extension(path);
      extension.starts_with(".grib") || extension == ".grb" || extension == ".grb2") {
    throw Error(ErrorClass::kBadData, str(path, " is a GRIB file"),
                str("read are HDF5, netCDF-4 and Zarr: grib_to_netcdf -k 4 -o NEW.nc ", path, " converts it"));
  }
}

// Of dates: the mean of the steps in the files and between them that are as long as those of the first file with two
// rows, else of those from file to file that are as long as most. Months are of different lengths.
double usual_interval(const std::vector<RowFile>& files) {
  std::vector<double> firsts;
  double expected = 0.0;
  for (const RowFile& file : files) {
    expected = expected == 0.0 ? file.layout.times.interval : expected;
    firsts.push_back(file.layout.times.first);
  }
  if (expected == 0.0) {
    return time_axis(firsts, "seconds since 1970-01-01", "").interval;
  }
  double sum = 0.0, count = 0.0;
  const auto add = [&](double interval, double steps) {
    if (is_same_interval(interval, expected)) {
      sum += interval * steps;
      count += steps;
    }
  };
  const TimeAxis* before = nullptr;
  for (const RowFile& file : files) {
    const TimeAxis& times = file.layout.times;
    add(times.interval, static_cast<double>(file.layout.num_rows() - 1 - std::ssize(times.gaps)));
    if (before != nullptr) {
      add(times.first - before->last, 1.0);
    }
    before = &times;
  }
  return count > 0.0 ? std::round(sum / count) : expected;
}

// The usable rows of a file without its gaps and missing rows.
std::vector<Range> parts_of(const ArrayLayout& layout) {
  std::vector<Range> cuts;
  for (const int64_t gap : layout.times.gaps) {
    cuts.push_back({gap, gap});
  }
  for (const int64_t missing : layout.missing) {
    cuts.push_back({missing, missing + 1});
  }
  std::sort(cuts.begin(), cuts.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  const Range usable = layout.usable_rows();
  cuts.push_back({usable.end, usable.end});
  std::vector<Range> parts;
  int64_t begin = usable.begin;
  for (const Range& cut : cuts) {
    if (const Range part = {begin, std::min(cut.begin, usable.end)}; part.begin < part.end) {
      parts.push_back(part);
    }
    begin = std::max(begin, cut.end);
  }
  return parts;
}

// Whether the rows of a file go on with those of the file before it.
bool follows(const TimeAxis& before, const TimeAxis& times, double interval) {
  const auto fits = [&](double other) { return other == 0.0 || is_same_interval(other, interval); };
  return before.kind == TimeAxis::Kind::kDates && times.kind == before.kind && times.calendar == before.calendar &&
         times.simulation == before.simulation && fits(before.interval) && fits(times.interval) &&
         is_same_interval(times.first - before.last, interval);
}

std::string numbered_name(int64_t channel, int64_t count) {
  const std::string number = str(channel);
  const size_t width = std::max<size_t>(2, str(count - 1).size());
  return "c" + std::string(width - number.size(), '0') + number;
}

}  // namespace

bool has_hdf5_name(const std::string& path) {
  const std::string extension = small_extension(path);
  return extension == ".h5" || extension == ".hdf5" || extension == ".nc" || extension == ".nc4";
}

std::vector<std::string> list_weather_files(const std::string& folder) {
  std::error_code error;
  if (fs::is_regular_file(folder, error) && has_hdf5_name(folder)) {
    return {folder};
  }
  if (!fs::is_directory(folder, error)) {
    if (fs::exists(folder, error)) {
      refuse_grib(folder);
    }
    throw Error(ErrorClass::kMissingInput,
                str("the data folder ", folder,
                    fs::exists(folder, error) ? " is no folder"
                                              : str(" is not there", error ? str(" (", error.message(), ")") : "")),
                "give a folder with one HDF5 file a year, or a Zarr store");
  }
  if (is_zarr_store(folder)) {
    return {folder};
  }
  std::vector<std::string> paths, others;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool is_hidden = name.starts_with('.');  // what copying programs leave
    if (!is_hidden && (has_hdf5_name(name) || (entry->is_directory(error) && is_zarr_store(entry->path().string())))) {
      paths.push_back(entry->path().string());
    } else {
      others.push_back(entry->path().string());
    }
  }
  if (error) {
    throw Error(ErrorClass::kIo, str("cannot list the folder ", folder, ": ", error.message()));
  }
  if (paths.empty()) {
    for (const std::string& other : others) {
      refuse_grib(other);
    }
    throw Error(ErrorClass::kMissingInput,
                str("the data folder ", folder, " holds no file *.h5, *.hdf5, *.nc or *.nc4, and no Zarr store"),
                "it must hold one HDF5 file a year, such as 1990.h5, or Zarr stores");
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string order_by_time(std::vector<RowFile>& files) {
  if (files.size() < 2) {
    return "";
  }
  const bool has_numbers = have_all(files, TimeAxis::Kind::kNumbers);
  if (has_numbers || have_all(files, TimeAxis::Kind::kDates)) {
    sort_by_begin(files);
    refuse_overlap(files);
    if (find_overlap(files) == files.end()) {
      return "";
    }
  }
  const std::string why = has_numbers ? "their time axes, which have no units, overlap" : why_not_by_times(files);
  const auto unnamed = std::find_if_not(files.begin(), files.end(), &has_year);
  if (unnamed != files.end() && !are_counted(files)) {
    throw Error(
        ErrorClass::kBadData,
        str("the order of the files is not known: ", why, ", and the name of ", unnamed->path,
            " does not end with a year"),
        "give all files a dimension scale of time with CF units (`hours since 1900-01-01`) and one calendar, or "
        "name them by their year, such as 1990.h5, or by numbers of equal length, such as 201501.h5; move other files "
        "out of the folder");
  }
  sort_by_number(files);
  refuse_overlap(files);
  const char* names = unnamed == files.end() ? "years" : "numbers";
  return unnamed == files.end() && !has_numbers ? ""
                                                : str("files in the order of the ", names, " in their names: ", why);
}

double common_interval(const std::vector<RowFile>& files) {
  if (!have_all(files, TimeAxis::Kind::kDates)) {
    return 0.0;
  }
  const double expected = usual_interval(files);
  const auto has_interval = [](const RowFile& file) { return file.layout.times.interval != 0.0; };
  const auto first = std::find_if(files.begin(), files.end(), has_interval);
  const auto other = std::find_if(files.begin(), files.end(), [&](const RowFile& file) {
    return has_interval(file) && !is_same_interval(file.layout.times.interval, expected);
  });
  if (other != files.end()) {
    throw Error(ErrorClass::kBadData,
                str("the times of ", other->path, " are ", other->layout.times.interval / kSecondsOfHour,
                    " hours apart, those of ", first->path, " ", first->layout.times.interval / kSecondsOfHour),
                "pairs would lie differently far apart: give files of one interval");
  }
  return expected;
}

std::vector<Range> time_runs(const std::vector<RowFile>& files) {
  const double interval = usual_interval(files);
  std::vector<Range> runs;
  int64_t first_row = 0;  // of the file, among those of all
  for (size_t i = 0; i < files.size(); ++i) {
    const ArrayLayout& layout = files[i].layout;
    const bool goes_on = i > 0 && !runs.empty() && runs.back().end == first_row &&
                         follows(files[i - 1].layout.times, layout.times, interval);
    for (const Range& part : parts_of(layout)) {
      if (part.begin == 0 && goes_on) {
        runs.back().end = first_row + part.end;
      } else {
        runs.push_back({first_row + part.begin, first_row + part.end});
      }
    }
    first_row += layout.num_rows();
  }
  return runs;
}

Range chosen_rows(const std::vector<RowFile>& files) {
  Range all;
  int64_t first_row = 0;
  for (const RowFile& file : files) {
    const Range rows = file.layout.chosen_rows();
    if (!rows.empty()) {
      all = {all.empty() ? first_row + rows.begin : all.begin, first_row + rows.end};
    }
    first_row += file.layout.num_rows();
  }
  return all;
}

int64_t num_rows(const std::vector<Range>& runs) {
  return std::accumulate(runs.begin(), runs.end(), int64_t{0},
                         [](int64_t sum, const Range& run) { return sum + run.size(); });
}

TimeRow nth_row(const std::vector<Range>& runs, int64_t index) {
  for (const Range& run : runs) {
    if (index < run.size()) {
      return {run.begin + index, run};
    }
    index -= run.size();
  }
  VH_ASSERT(false, "runs that do not hold all rows");
}

std::vector<double> seconds_of_rows(const comm::MpiGroup& group, const std::vector<RowFile>& files) {
  std::vector<double> seconds;
  comm::agreed_on_rank_0(group, [&] {
    for (const RowFile& file : files) {
      const StoredTimes times = stored_times(file.path, file.layout.stored_arrays().front()->name);
      const std::vector<double> of_file = seconds_of_times(times, file.layout.times);
      seconds.insert(seconds.end(), of_file.begin(), of_file.end());
    }
  });
  seconds.resize(static_cast<size_t>(num_rows(files)));
  group.broadcast(seconds.data(), static_cast<int64_t>(seconds.size() * sizeof(double)), 0);
  return seconds;
}

TimePairs::TimePairs(const std::vector<Range>& runs, int64_t lead, int64_t history, Range chosen) : lead_(lead) {
  VH_ASSERT(lead > 0 && history > 0, str("lead ", lead, ", history ", history));
  int64_t end = 0;
  for (const Range& run : runs) {
    firsts_.push_back(std::max(run.begin + lead * (history - 1), chosen.begin));
    end += std::max<int64_t>(std::min(run.end, chosen.end) - lead - firsts_.back(), 0);
    ends_.push_back(end);
  }
}

int64_t TimePairs::input_row(int64_t sample) const {
  VH_ASSERT(sample >= 0 && sample < size(), str("sample ", sample, " of ", size()));
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), sample);
  return firsts_[static_cast<size_t>(end - ends_.begin())] + sample - (end == ends_.begin() ? 0 : *(end - 1));
}

std::vector<std::string> split_channels(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    const size_t first = std::min(part.find_first_not_of(' '), part.size());
    const size_t last = part.find_last_not_of(' ');
    parts.emplace_back(first == part.size() ? "" : part.substr(first, last - first + 1));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::string> names_in(const std::string& list) {
  return list.empty() ? std::vector<std::string>() : split_channels(list);
}

std::vector<std::string> channel_names(int64_t count, const std::string& attribute, const std::string& file) {
  if (attribute.empty() && count != kNumEra5Channels) {
    std::vector<std::string> names;
    for (int64_t channel = 0; channel < count; ++channel) {
      names.push_back(numbered_name(channel, count));
    }
    return names;
  }
  auto names = split_channels(attribute.empty() ? kEra5Channels : attribute);
  if (static_cast<int64_t>(names.size()) != count) {
    throw Error(ErrorClass::kBadData, str(file, ": the attribute 'channels' names ", names.size(), " channels (",
                                          shown(join(names)), "), the data have ", count));
  }
  return names;
}

}  // namespace vit_hybrid::data
