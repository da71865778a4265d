// Spoils a checkpoint and seals it again, so that only its contents can betray it, for hostile_inputs.py.
//
//   hostile_checkpoint set FILE NAME TEXT|@PATH   gives an attribute another value (@PATH: that file's bytes)
//   hostile_checkpoint remove FILE DATASET        takes a tensor away
//   hostile_checkpoint seal FILE                  seals the bytes as they are now
#include <hdf5.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>

#include "data/hdf5/hdf5_attributes.h"
#include "data/reading/file_seal.h"
#include "data/reading/posix_file.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint_reader.h"

namespace {

using namespace vit_hybrid;

// Of the seal's text: the block's bytes, the file's, and the ranges that it answers for.
struct Seal {
  int64_t block = 0;
  int64_t file = 0;
  std::vector<Range> ranges;
};

Seal read_seal(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string line;
  std::string word;
  Seal seal;
  std::getline(stream, line);
  stream >> word >> seal.block >> word >> word >> seal.file;
  for (Range range; stream >> range.begin >> range.end >> word;) {
    seal.ranges.push_back(range);
  }
  return seal;
}

// What lies between the sealed ranges: the tensors' values.
std::vector<Range> values_of(const Seal& seal) {
  std::vector<Range> values;
  int64_t at = seal.block;
  for (const Range& range : seal.ranges) {
    values.push_back({at, range.begin});
    at = range.end;
  }
  values.push_back({at, seal.file});
  return values;
}

void write_seal(const std::string& path, const Seal& old) {
  const data::PosixFile file(path, data::PosixFile::Access::kUpdate);
  std::vector<Range> values = values_of(old);
  for (Range& range : values) {
    range.begin = std::min(range.begin, file.size());
    range.end = std::min(range.end, file.size());
  }
  std::erase_if(values, [](const Range& range) { return range.begin >= range.end; });
  data::write_seal(file, old.block, values);
}

void set_member(train::CheckpointInfo& info, const std::string& name, const std::string& value) {
  const std::map<std::string, std::string*> texts = {{"version", &info.version},   {"config", &info.config},
                                                     {"model", &info.model},       {"optimizer", &info.optimizer},
                                                     {"channels", &info.channels}, {"kernels", &info.kernels},
                                                     {"layout", &info.layout},     {"metric", &info.metric}};
  const std::map<std::string, int64_t*> numbers = {{"format", &info.format},
                                                   {"step", &info.step},
                                                   {"optimizer_steps", &info.optimizer_steps},
                                                   {"good_steps", &info.good_steps},
                                                   {"skipped_steps", &info.skipped_steps},
                                                   {"epoch", &info.epoch},
                                                   {"samples_of_epoch", &info.samples_of_epoch},
                                                   {"seed", &info.seed},
                                                   {"num_samples", &info.num_samples}};
  if (texts.count(name) != 0) {
    *texts.at(name) = value;
  } else if (numbers.count(name) != 0) {
    *numbers.at(name) = std::stoll(value);
  } else if (name == "loss_scale") {
    info.loss_scale = std::stod(value);
  } else {
    info.metric_value = std::stod(value);
  }
}

std::string value_of(const std::string& word) {
  if (word.empty() || word.front() != '@') {
    return word;
  }
  std::ifstream stream(word.substr(1), std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void set(const std::string& path, const std::string& name, const std::string& value) {
  const Seal seal = read_seal(path);
  train::CheckpointInfo info = train::CheckpointReader(path).info();
  set_member(info, name, value);
  const data::Hdf5Attributes attributes = train::info_attributes(info);
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  for (const auto& attribute : attributes) {
    H5Adelete(file, attribute.first.c_str());
    for (int part = 1; H5Aexists(file, str(attribute.first, ".", part).c_str()) > 0; ++part) {
      H5Adelete(file, str(attribute.first, ".", part).c_str());
    }
  }
  data::hdf5_add_attributes(file, attributes, path);
  H5Fclose(file);
  write_seal(path, seal);
}

void remove(const std::string& path, const std::string& dataset) {
  const Seal seal = read_seal(path);
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  H5Ldelete(file, dataset.c_str(), H5P_DEFAULT);
  H5Fclose(file);
  write_seal(path, seal);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 4 && words[0] == "set") {
      set(words[1], words[2], value_of(words[3]));
    } else if (words.size() == 3 && words[0] == "remove") {
      remove(words[1], words[2]);
    } else if (words.size() == 2 && words[0] == "seal") {
      write_seal(words[1], read_seal(words[1]));
    } else {
      throw std::runtime_error("unknown words");
    }
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "hostile_checkpoint: %s\n", exception.what());
    return 1;
  }
  return 0;
}
