// Listing of year files, the arithmetic of pairs, and the names of channels.
#include "data/year_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

namespace fs = std::filesystem;

constexpr size_t kYearLength = 4;
constexpr const char* kEra5Channels =
    "u10,v10,t2m,sp,msl,t850,u1000,v1000,z1000,u850,v850,z850,u500,v500,z500,t500,z50,r500,r850,tcwv";
constexpr int64_t kNumEra5Channels = 20;

std::string year_of(const fs::path& path) {
  const std::string stem = path.stem().string();
  const std::string year = stem.size() < kYearLength ? stem : stem.substr(stem.size() - kYearLength);
  if (year.size() != kYearLength || year.find_first_not_of("0123456789") != std::string::npos) {
    throw Error(ErrorClass::kBadData, str(path.string(), ": the last four characters before .h5 are no year"),
                "weather files are named by their year, such as 1990.h5; move other files out of the folder");
  }
  return year;
}

std::vector<std::string> split(const std::string& text) {
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

std::string numbered_name(int64_t channel, int64_t count) {
  const std::string number = str(channel);
  const size_t width = std::max<size_t>(2, str(count - 1).size());
  return "c" + std::string(width - number.size(), '0') + number;
}

}  // namespace

std::vector<std::string> list_year_files(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw Error(ErrorClass::kMissingInput,
                str("the data folder ", folder,
                    fs::exists(folder, error) ? " is no folder"
                                              : str(" is not there", error ? str(" (", error.message(), ")") : "")),
                "give a folder with one HDF5 file a year");
  }
  std::map<std::string, std::string> by_year;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() != ".h5" || entry->path().filename().string().starts_with('.')) {
      continue;  // hidden ones are what copying programs leave
    }
    const std::string path = entry->path().string();
    const auto [other, is_new] = by_year.emplace(year_of(entry->path()), path);
    if (!is_new) {
      throw Error(ErrorClass::kBadData,
                  str(folder, " has two files of the year ", other->first, ": ", other->second, " and ", path));
    }
  }
  if (error) {
    throw Error(ErrorClass::kIo, str("cannot list the folder ", folder, ": ", error.message()));
  }
  if (by_year.empty()) {
    throw Error(ErrorClass::kMissingInput, str("the data folder ", folder, " holds no file *.h5"),
                "it must hold one HDF5 file a year, such as 1990.h5");
  }
  std::vector<std::string> paths;
  for (const auto& [year, path] : by_year) {
    paths.push_back(path);
  }
  return paths;
}

YearPairs::YearPairs(const std::vector<int64_t>& num_times) {
  int64_t end = 0;
  for (const int64_t times : num_times) {
    end += std::max<int64_t>(times - 1, 0);
    ends_.push_back(end);
  }
}

YearPairs::Pair YearPairs::pair(int64_t sample) const {
  VH_ASSERT(sample >= 0 && sample < size(), str("sample ", sample, " of ", size()));
  const auto file = std::upper_bound(ends_.begin(), ends_.end(), sample);
  const int64_t begin = file == ends_.begin() ? 0 : *(file - 1);
  return {file - ends_.begin(), sample - begin};
}

std::vector<std::string> channel_names(int64_t count, const std::string& attribute, const std::string& file) {
  if (attribute.empty() && count != kNumEra5Channels) {
    std::vector<std::string> names;
    for (int64_t channel = 0; channel < count; ++channel) {
      names.push_back(numbered_name(channel, count));
    }
    return names;
  }
  auto names = split(attribute.empty() ? kEra5Channels : attribute);
  if (static_cast<int64_t>(names.size()) != count) {
    throw Error(ErrorClass::kBadData, str(file, ": the attribute 'channels' names ", names.size(), " channels (",
                                          join(names), "), the data have ", count));
  }
  return names;
}

}  // namespace vit_hybrid::data
