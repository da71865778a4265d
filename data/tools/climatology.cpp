// Rows summed by their day and hour in boxes of channels and latitudes, and the window over the days.
#include "data/tools/climatology.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <set>
#include <utility>

#include "data/datasets/weather_dataset.h"
#include "data/datasets/year_files.h"
#include "data/generate/weather_files.h"
#include "data/reading/box_runs.h"
#include "data/tools/tool_files.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr int64_t kDaysOfYear = 366;
constexpr int64_t kYearOfRows = 2000;  // has them all

// Of what a rank reads together, and at most of rows that lie in one chunk.
constexpr int64_t kBytesOfRead = int64_t{32} << 20;
constexpr int64_t kMostBytesOfRead = int64_t{128} << 20;

// So that ranks share an hour even where memory would not need it to be cut.
constexpr int64_t kPartsOfHour = 16;

std::string hour_text(double seconds) {
  const auto minutes = static_cast<int>(seconds / 60.0);
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%02d:%02d", minutes / 60, minutes % 60);
  return text.data();
}

// Sums by day of the year [366, count] become those over the window, in which a day at distance o counts N/2 - |o|
// times: whole numbers, by which sums and numbers of rows are multiplied alike. In tiles that stay in the cache.
void sum_windows(double* by_day, int64_t count, int64_t window_days) {
  constexpr int64_t kTile = 256;
  const int64_t half = std::max<int64_t>(window_days / 2, 1);
  std::vector<double> windows(static_cast<size_t>(kDaysOfYear * kTile));
  for (int64_t begin = 0; begin < count; begin += kTile) {
    const int64_t size = std::min(kTile, count - begin);
    std::fill(windows.begin(), windows.end(), 0.0);
    for (int64_t day = 0; day < kDaysOfYear; ++day) {
      double* const to = windows.data() + day * kTile;
      for (int64_t offset = 1 - half; offset < half; ++offset) {
        const auto weight = static_cast<double>(half - std::abs(offset));
        const double* const from = by_day + (day + offset + kDaysOfYear) % kDaysOfYear * count + begin;
        for (int64_t i = 0; i < size; ++i) {
          to[i] += weight * from[i];
        }
      }
    }
    for (int64_t day = 0; day < kDaysOfYear; ++day) {
      std::copy_n(windows.data() + day * kTile, size, by_day + day * count + begin);
    }
  }
}

void require_dates(const std::vector<RowFile>& files) {
  for (const RowFile& file : files) {
    const TimeAxis& times = file.layout.times;
    if (times.kind != TimeAxis::Kind::kDates) {
      throw Error(ErrorClass::kBadData, str(file.path, " has no dates, by which a climatology is made"),
                  "a coordinate of time with CF units (`hours since 1900-01-01`) is needed; leave --climatology out");
    }
    if (times.calendar == "360_day") {
      throw Error(ErrorClass::kBadData,
                  str(file.path, " has the calendar 360_day, whose days are not those of a climatology's year"),
                  "needed are years of 365 or 366 days; leave --climatology out");
    }
  }
}

// Whether chunks are decoded whole, so that each part of one that is read costs all of it.
bool has_whole_chunks(const ArrayLayout& layout) {
  const auto arrays = layout.stored_arrays();
  return std::any_of(arrays.begin(), arrays.end(), [](const ArrayLayout* array) {
    return !array->chunk.empty() && array->storage != ArrayLayout::Storage::kChunked;
  });
}

}  // namespace

// Of the rows of a box, [hours x 366, channels, latitudes, longitudes] and [.., 1, 1, 1] where all values are there.
struct Climatology::Sums {
  at::Tensor values;
  at::Tensor counts;

  void add(int64_t slot, const at::Tensor& row) {
    const at::Tensor sums = values[slot], number = counts[slot];
    if (number.numel() == 1) {
      sums.add_(row);
      number.add_(1.0);
    } else {
      add_finite(row, sums, number);
    }
  }
};

Climatology::Climatology(const comm::MpiGroup& group, const RowSource& source, const ClimatologyOptions& options)
    : group_(group), source_(source), options_(options) {
  VH_ASSERT(options.window_days % 2 == 1 && options.window_days >= 1 && options.window_days <= kMostWindowDays,
            str("a window of ", options.window_days, " days"));
  comm::agreed(group, [&] { require_dates(source.files()); });
  const std::vector<double> seconds = seconds_of_rows(group, source.files());
  comm::agreed(group, [&] {
    set_rows(seconds);
    check_windows();
  });
}

void Climatology::set_rows(const std::vector<double>& seconds) {
  std::vector<double> of_day;  // of each row
  std::set<int64_t> years;
  for (const Range& run : time_runs(source_.files())) {
    for (int64_t row = run.begin; row < run.end; ++row) {
      const RowSource::Place place = source_.place(row);
      const TimeAxis& axis = source_.files()[static_cast<size_t>(place.file)].layout.times;
      const DayTime date = day_time(seconds[static_cast<size_t>(row)], axis);
      of_day.push_back(date.seconds);
      rows_.push_back(
          {place, 0, date.day_of_year - 1, date.day_of_year == date.days_in_year && date.days_in_year < kDaysOfYear});
      years.insert(date.year);
    }
  }
  num_years_ = std::ssize(years);
  hours_ = of_day;
  std::sort(hours_.begin(), hours_.end());
  hours_.erase(std::unique(hours_.begin(), hours_.end()), hours_.end());
  for (size_t i = 0; i < rows_.size(); ++i) {
    rows_[i].hour = std::lower_bound(hours_.begin(), hours_.end(), of_day[i]) - hours_.begin();
  }
}

void Climatology::check_windows() const {
  const auto num_hours = std::ssize(hours_);
  std::vector<double> counts(static_cast<size_t>(kDaysOfYear * num_hours));
  const auto count = [&](int64_t day, int64_t hour) { counts[static_cast<size_t>(day * num_hours + hour)] += 1.0; };
  for (const DatedRow& row : rows_) {
    count(row.day, row.hour);
    if (row.is_last) {
      count(row.day + 1, row.hour);
    }
  }
  sum_windows(counts.data(), num_hours, options_.window_days);
  const auto none = std::find(counts.begin(), counts.end(), 0.0);
  if (none != counts.end()) {
    const int64_t number = none - counts.begin();
    throw Error(ErrorClass::kBadData,
                str("no row of ", source_.files().front().path,
                    source_.files().size() == 1 ? "" : str(" and ", counted(source_.files().size() - 1, "more file")),
                    " counts for day ", number / num_hours + 1, " of the year at ",
                    hour_text(hours_[static_cast<size_t>(number % num_hours)]), ", with a window of ",
                    counted(options_.window_days, "day")),
                "a climatology needs data of all of the year at the same hours: give more of them or a longer "
                "--climatology-days, or leave --climatology out");
  }
}

int64_t Climatology::bytes() const {
  std::vector<int64_t> shape = source_.files().front().layout.shape;
  shape.front() = kDaysOfYear * std::ssize(hours_);
  return num_elements(shape) * static_cast<int64_t>(sizeof(float));
}

std::string Climatology::text() const {
  return str(kDaysOfYear, " days x ", counted(hours_.size(), "hour"), ", from ", counted(rows_.size(), "row"), " of ",
             counted(num_years_, "year"), " in a window of ", counted(options_.window_days, "day"));
}

// Channels that lie in the same chunks, where these are decoded whole; else few enough for the ranks to share.
std::vector<Range> Climatology::channels_read_together() const {
  const ArrayLayout& layout = source_.files().front().layout;
  const int64_t count = layout.shape[1];
  std::vector<Range> parts;
  if (has_whole_chunks(layout) && !layout.runs.empty()) {
    int64_t array = -1;
    for (const ChannelRun& run : layout.runs) {
      if (run.array != std::exchange(array, run.array)) {
        parts.push_back({run.channel, run.channel});
      }
      parts.back().end = run.channel + run.count;
    }
    return parts;
  }
  const RowGroups groups = has_whole_chunks(layout) ? RowGroups(count, layout.chunk[1], layout.chunks_along(1))
                                                    : RowGroups(count, 1, std::min(count, kPartsOfHour));
  for (int64_t i = 0; i < groups.parts(); ++i) {
    parts.push_back(groups.part(i));
  }
  return parts;
}

// A function of the data alone. Together the boxes are all values, each once, and a value is read once where its bytes
// can be read by themselves. A chunk that is decoded whole is decoded for each box that it has a part in: once where
// all it holds fits into options_.bytes_of_sums, by hour, day and element (8 bytes of sum, with MissingValues::kCount 8
// more of number), else as many times as that is exceeded. Where a chunk holds several times, boxes are of all hours.
std::vector<Climatology::Box> Climatology::cut() const {
  const ArrayLayout& layout = source_.files().front().layout;
  const auto num_hours = std::ssize(hours_);
  const int64_t height = layout.shape[2], width = layout.shape[3];
  const int64_t sums = options_.missing == MissingValues::kCount ? 2 : 1;
  const int64_t most_of_hour = options_.bytes_of_sums / (kDaysOfYear * sums * static_cast<int64_t>(sizeof(double)));
  const int64_t hours = rows_read_together(layout) > 1 ? std::clamp<int64_t>(most_of_hour / width, 1, num_hours) : 1;
  const int64_t most = most_of_hour / hours;  // elements
  // Bands of whole chunks, where one fits.
  const int64_t chunk_rows = layout.chunk.empty() ? 1 : layout.chunk[2];
  const int64_t unit = chunk_rows * width <= most ? chunk_rows : 1;
  const int64_t units = (height + unit - 1) / unit;
  const int64_t units_in_box = std::clamp<int64_t>(most / (width * unit), 1, units);
  const RowGroups bands(height, unit, (units + units_in_box - 1) / units_in_box);
  const int64_t channels_in_box = std::max<int64_t>(most / (height * width), 1);
  std::vector<Box> boxes;
  for (int64_t hour = 0; hour < num_hours; hour += hours) {
    for (const Range& together : channels_read_together()) {
      const Partition parts(together.size(), (together.size() + channels_in_box - 1) / channels_in_box);
      for (int64_t i = 0; i < parts.parts() * bands.parts(); ++i) {
        const Range part = parts.part(i / bands.parts());
        boxes.push_back({{hour, std::min(hour + hours, num_hours)},
                         {together.begin + part.begin, together.begin + part.end},
                         bands.part(i % bands.parts())});
      }
    }
  }
  return boxes;
}

void Climatology::sum(const Box& box, Sums& sums) const {
  const ArrayLayout& layout = source_.files().front().layout;
  const std::vector<int64_t> shape = {box.channels.size(), box.latitudes.size(), layout.shape[3]};
  const RowBox read{{box.channels.begin, box.latitudes.begin, 0}, shape};
  const int64_t slots = box.hours.size() * kDaysOfYear;
  sums.values.resize_({slots, shape[0], shape[1], shape[2]}).zero_();
  const std::vector<int64_t> of_slots = {slots, 1, 1, 1};
  sums.counts.resize_(options_.missing == MissingValues::kCount ? sums.values.sizes() : at::IntArrayRef(of_slots))
      .zero_();
  // Rows whose chunks are the same are read together, as far as memory allows.
  const int64_t row_bytes = read.num_values() * static_cast<int64_t>(c10::elementSize(layout.type));
  const int64_t in_chunk = rows_read_together(layout);
  const int64_t usual = std::max<int64_t>(kBytesOfRead / row_bytes, 1);
  const int64_t most =
      std::clamp<int64_t>(kMostBytesOfRead / row_bytes, 1, std::min(usual + in_chunk, std::ssize(rows_)));
  const at::Tensor values = at::empty({most, shape[0], shape[1], shape[2]}, layout.type);
  std::vector<const DatedRow*> rows;
  const auto read_rows = [&] {
    std::vector<RowRead> reads;
    for (const DatedRow* row : rows) {
      reads.push_back(
          {row->place.file, row->place.row, static_cast<char*>(values.data_ptr()) + std::ssize(reads) * row_bytes});
    }
    source_.read_once(reads, read, {});
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t slot = (rows[i]->hour - box.hours.begin) * kDaysOfYear + rows[i]->day;
      for (int64_t day = 0; day <= (rows[i]->is_last ? 1 : 0); ++day) {
        sums.add(slot + day, values[static_cast<int64_t>(i)]);
      }
    }
    rows.clear();
  };
  for (const DatedRow& row : rows_) {
    if (!box.hours.contains(row.hour)) {
      continue;
    }
    const bool is_new = rows.empty() || rows.back()->place.file != row.place.file ||
                        rows.back()->place.row / in_chunk != row.place.row / in_chunk;
    if (std::ssize(rows) == most || (std::ssize(rows) >= usual && is_new)) {
      read_rows();
    }
    rows.push_back(&row);
  }
  read_rows();
}

void Climatology::write_means(Sums& sums, const Box& box, Hdf5Writer& file) const {
  const auto sum_hours = [&](const at::Tensor& all) {
    const int64_t count = all[0].numel();
    for (int64_t hour = 0; hour < box.hours.size(); ++hour) {
      sum_windows(all.mutable_data_ptr<double>() + hour * kDaysOfYear * count, count, options_.window_days);
    }
  };
  sum_hours(sums.values);
  sum_hours(sums.counts);
  for (int64_t hour = box.hours.begin; hour < box.hours.end; ++hour) {
    for (int64_t day = 0; day < kDaysOfYear; ++day) {
      const int64_t slot = (hour - box.hours.begin) * kDaysOfYear + day;
      if (sums.counts[slot].min().item<double>() == 0.0) {
        throw Error(ErrorClass::kBadData,
                    str("an element of channels ", box.channels.begin, " to ", box.channels.end - 1,
                        " is missing at all times within the window around day ", day + 1, " of the year at ",
                        hour_text(hours_[static_cast<size_t>(hour)])),
                    "give a longer --climatology-days, or leave --climatology out");
      }
      const std::array<int64_t, 4> start = {day * std::ssize(hours_) + hour, box.channels.begin, box.latitudes.begin,
                                            0};
      file.write(kFieldsName, start, (sums.values[slot] / sums.counts[slot]).to(at::kFloat).unsqueeze(0));
    }
  }
}

std::unique_ptr<Hdf5Writer> Climatology::write(const std::string& path, const std::vector<std::string>& names) const {
  const RowFile& first = source_.files().front();
  std::vector<std::string> units;
  comm::agreed_on_rank_0(group_, [&] { units = channel_units(told_units(first), names); });
  units = group_.broadcast(units, 0);
  WeatherContent content;
  for (size_t i = 0; i < names.size(); ++i) {
    content.channels.push_back({names[i], "", 0.0, units[i]});
  }
  content.height = first.layout.shape[2];
  content.width = first.layout.shape[3];
  content.grid = given_grid(source_.files());
  for (int64_t day = 0; day < kDaysOfYear; ++day) {
    for (const double hour : hours_) {
      content.times.push_back(begin_of_year(kYearOfRows) + static_cast<double>(day) * 24.0 + hour / kSecondsOfHour);
    }
  }
  content.attributes = {
      {"title", "climatology by day of the year and hour of the day"},
      {"Conventions", "CF-1.8"},
      {"comment",
       "Means over years and a window of days, whose weights fall linearly from 1 at its centre to 0; the dates are "
       "those of a leap year, whose days 1 to 366 count."},
      {"window_days", options_.window_days},
      {"num_rows", std::ssize(rows_)},
      {"num_years", num_years_}};
  auto file = create_fields_file(group_, path, content);
  const std::vector<Box> boxes = cut();
  // Once for the largest box: blocks of many sizes would leave holes in a heap that is kept.
  int64_t largest = 0;
  for (const Box& box : boxes) {
    largest = std::max(largest, box.hours.size() * kDaysOfYear * box.channels.size() * box.latitudes.size());
  }
  largest *= content.width;
  Sums sums{at::empty({largest}, at::kDouble),
            at::empty({options_.missing == MissingValues::kCount ? largest : 0}, at::kDouble)};
  const Partition shares(std::ssize(boxes), group_.size());
  const Range mine = shares.part(group_.rank());
  Progress progress(str("reading ", rows_.size(), " rows for the climatology"), shares.largest());
  for (int64_t done = 0; done < shares.largest(); ++done, progress.add()) {
    comm::agreed(group_, [&] {
      if (done < mine.size()) {
        const Box& box = boxes[static_cast<size_t>(mine.begin + done)];
        sum(box, sums);
        write_means(sums, box, *file);
      }
    });
  }
  comm::agreed(group_, [&] { file->flush(); });
  return file;
}

}  // namespace vit_hybrid::data
