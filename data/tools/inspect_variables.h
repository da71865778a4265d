// What `data inspect` tells of arrays that hold a quantity each, in Zarr stores and NetCDF-4 files: levels, times and
// points, and the names by which they are asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/datasets/field_catalogue.h"
#include "data/tools/inspect_files.h"

namespace vit_hybrid::data {

/// A text and, behind it, the values of samples, which all ranks look at together: of `channels` of the rows of
/// `dataset`, or where that is empty of those that FieldQuery finds by these names. Without channels no values.
struct InspectedPart {
  std::string text;
  std::string dataset = {};
  std::vector<std::string> channels = {};
  std::vector<std::string> words = {};  ///< what --channels takes of the whole file
};

/// "  title:      text" and the end of the line.
std::string inspect_line(const std::string& title, const std::string& text);

/// Characters of the names of channels that are shown.
inline constexpr size_t kMostNamesText = 8192;
/// Values of an array of one dim that is read in one go.
inline constexpr int64_t kMostListed = int64_t{1} << 23;

using NamedTexts = std::vector<std::pair<std::string, std::string>>;
/// The lines of an array's dims, where they have names, and of its attributes.
std::string names_text(const std::vector<std::string>& dims, const NamedTexts& attributes);

/// statistics_table() of one line.
std::string table_of_values(const at::Tensor& values, const std::string& name);

/// "reading: one sample of 19.8 MiB = 20 reads, 1.00 x the bytes wanted (9.50 MiB in the file, inflated to 19.8 MiB)".
std::string cost_line(const ReadCost& cost, const std::string& what, const std::string& where = "in the file");

/// The option that takes these channels.
std::string channels_line(const std::vector<std::string>& words);

/// `word` as a shell reads it.
std::string quoted_word(const std::string& word);

/// What --channels calls each plane of variable `number` of a file, `where`: the short name of ERA5 with its level
/// ("z500"), else its own ("phi:500"); an empty text where find_channels() finds no such plane by either. Pure.
std::vector<std::string> words_of_channels(std::span<const FieldVariable> variables, size_t number,
                                           const std::string& where);

/// "24 from 1990-01-01 00:00:00 to 1990-01-06 18:00:00, 6 hours apart, 1 gap (before row 6)"; "no times".
std::string times_text(const TimeAxis& times, int64_t num_rows);

/// The variables of a file or store, told of one by one and then together. On one rank alone (main thread).
class InspectedVariables {
 public:
  using Inspect = std::function<ArrayLayout(const FieldVariable&)>;
  /// `inspect` describes one of the variables with its times and grid.
  InspectedVariables(std::string path, std::vector<FieldVariable> variables, Inspect inspect);

  /// Adds what is known of the variable `name` to the part, and what values are to be looked at; nothing where it holds
  /// no fields and is no static field. `cost`: of one of its rows. What training would refuse it for is said with
  /// the same words.
  void describe(const std::string& name, const ReadCost& cost, InspectedPart& part);

  /// Of all described so far: what a row costs, and the options that take them.
  InspectedPart together() const;

 private:
  struct Fields {
    std::vector<std::string> words;
    ArrayLayout layout;
    ReadCost cost;  // of a row
  };

  void describe_fields(size_t number, const ReadCost& cost, InspectedPart& part);
  void describe_static(const FieldVariable& variable, InspectedPart& part);

  std::string path_;
  std::vector<FieldVariable> variables_;
  Inspect inspect_;
  std::vector<Fields> fields_;
  std::vector<std::string> statics_;  // what --static calls them
};

/// The parts of a Zarr store, on one rank alone (main thread). Errors as read_zarr_store()'s.
std::vector<InspectedPart> describe_zarr_store(const std::string& path);

}  // namespace vit_hybrid::data
