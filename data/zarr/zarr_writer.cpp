// Metadata of v3 from arrays, chunks as Zstandard's frames, and the order in which names appear.
#include "data/zarr/zarr_writer.h"

#include <c10/core/ScalarType.h>
#include <fcntl.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>
#include <utility>

#include "data/reading/posix_file.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/folder_lock.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

namespace fs = std::filesystem;

constexpr int kZstdLevel = 1;  // noise of 32-bit floats is no smaller with more work

const char* zarr_type_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kInt:
      return "int32";
    default:
      VH_ASSERT(type == at::kLong, c10::toString(type));
      return "int64";
  }
}

void make_folder_of(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) {
    throw Error(ErrorClass::kCannotCreate, str("cannot create the folder of ", path, ": ", error.message()),
                "check the path and its permissions");
  }
}

std::vector<char> compressed(const at::Tensor& values) {
  struct Free {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  };
  thread_local const std::unique_ptr<ZSTD_CCtx, Free> context(ZSTD_createCCtx());
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kZstdLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::vector<char> frame(ZSTD_compressBound(values.nbytes()));
  const size_t count =
      ZSTD_compress2(context.get(), frame.data(), frame.size(), values.const_data_ptr(), values.nbytes());
  if (ZSTD_isError(count) != 0) {
    throw Error(ErrorClass::kInternal, str("zstd cannot compress a chunk: ", ZSTD_getErrorName(count)));
  }
  frame.resize(count);
  return frame;
}

// One call for all files: a wait for each would take longer than their writing.
void sync_file_system_of(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool is_done = descriptor >= 0 && ::syncfs(descriptor) == 0;
  const int error = errno;
  if (descriptor >= 0) {
    ::close(descriptor);
  }
  if (!is_done) {
    throw Error(ErrorClass::kIo, str("writing ", folder, " failed: ", reason(error)));
  }
}

bool is_in_grid(const ZarrArray& array, const std::vector<int64_t>& index) {
  bool is_in = index.size() == array.shape.size();
  for (size_t d = 0; is_in && d < index.size(); ++d) {
    is_in = index[d] < array.shape[d] / array.chunk[d] + (array.shape[d] % array.chunk[d] != 0 ? 1 : 0);
  }
  return is_in;
}

std::string metadata_path(const ZarrArray& array) {
  return str(array.name, "/", kZarrMetadata);
}

std::string metadata_text(const ZarrJson& json) {
  return json.dump(2) + "\n";
}

void write_metadata(const std::string& path, const ZarrJson& json) {
  make_folder_of(path);  // of an array without chunks
  WholeFile file(path);
  file.write(metadata_text(json));
  file.finish();
}

}  // namespace

ZarrArray zarr_array_to_write(const std::string& name, std::vector<int64_t> shape, std::vector<int64_t> chunk,
                              std::vector<std::string> dims, at::ScalarType type, ZarrJson attributes) {
  VH_ASSERT(shape.size() == chunk.size() && shape.size() == dims.size() && !shape.empty(), name);
  ZarrArray array;
  array.name = name;
  array.shape = std::move(shape);
  array.chunk = std::move(chunk);
  array.dims = std::move(dims);
  array.type = type;
  array.attributes = std::move(attributes);
  array.codecs = {{ChunkFilter::kZstd, 1}};
  array.fill_value = c10::isFloatingType(type) ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  array.key_prefix = "c";
  array.key_separator = '/';
  return array;
}

ZarrJson zarr_json(const ZarrArray& array) {
  const auto with = [](const char* name, ZarrJson configuration) {
    return ZarrJson{{"name", name}, {"configuration", std::move(configuration)}};
  };
  return {{"zarr_format", 3},
          {"node_type", "array"},
          {"shape", array.shape},
          {"data_type", zarr_type_name(array.type)},
          {"chunk_grid", with("regular", {{"chunk_shape", array.chunk}})},
          {"chunk_key_encoding", with("default", {{"separator", "/"}})},
          {"fill_value", c10::isFloatingType(array.type) ? ZarrJson("NaN") : ZarrJson(0)},
          {"codecs", ZarrJson::array({with("bytes", {{"endian", "little"}}),
                                      with("zstd", {{"level", kZstdLevel}, {"checksum", true}})})},
          {"dimension_names", array.dims},
          {"attributes", array.attributes}};
}

bool is_chunk_of(std::span<const ZarrArray> arrays, std::string_view path) {
  return std::any_of(arrays.begin(), arrays.end(), [&](const ZarrArray& array) {
    const std::string begin = array.name + "/c/";
    if (!path.starts_with(begin)) {
      return false;
    }
    const std::vector<int64_t> index = chunk_index(path.substr(begin.size()), array.key_separator);
    return is_in_grid(array, index) && array.chunk_path(index) == path;  // "c/0/012/3" is another file
  });
}

bool is_metadata_of(std::span<const ZarrArray> arrays, std::string_view path) {
  return path == kZarrMetadata || std::any_of(arrays.begin(), arrays.end(),
                                              [&](const ZarrArray& array) { return metadata_path(array) == path; });
}

bool is_unfinished_metadata(std::span<const ZarrArray> arrays, const std::string& folder, const std::string& path) {
  if (const std::string completed = completed_name(path); !completed.empty()) {
    return is_metadata_of(arrays, completed);
  }
  const auto array =
      std::find_if(arrays.begin(), arrays.end(), [&](const ZarrArray& known) { return metadata_path(known) == path; });
  if (array == arrays.end() || fs::exists(folder + "/" + kZarrMetadata)) {
    return false;
  }
  const std::string text = metadata_text(zarr_json(*array));
  const std::string file = folder + "/" + path;
  std::error_code error;
  return fs::file_size(file, error) == text.size() && !error &&
         read_regular_file(file, std::ssize(text), Links::kRefuse) == text;
}

std::string foreign_entry(std::span<const ZarrArray> arrays, const std::string& folder) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().string().substr(folder.size() + 1);
    const bool is_made = fs::is_directory(entry->symlink_status()) || is_chunk_of(arrays, name) ||
                         is_metadata_of(arrays, name) || is_unfinished_metadata(arrays, folder, name);
    if (!is_made || entry->is_symlink()) {
      return name;
    }
  }
  if (error) {
    throw Error(ErrorClass::kCannotCreate, str("cannot list ", folder, ": ", error.message()), "check its permissions");
  }
  return "";
}

ZarrWriter::ZarrWriter(const comm::MpiGroup& group, std::string folder, std::vector<ZarrArray> arrays,
                       ZarrJson attributes)
    : group_(group), folder_(std::move(folder)), arrays_(std::move(arrays)), attributes_(std::move(attributes)) {
  comm::agreed_on_rank_0(group_, [&] {
    require_folders();
    make_folder_of(folder_ + "/" + kZarrMetadata);
    std::vector<std::string> old = {kZarrMetadata};  // this one first
    std::transform(arrays_.begin(), arrays_.end(), std::back_inserter(old), metadata_path);
    for (const std::string& name : old) {
      const std::string path = folder_ + "/" + name;
      if (::unlink(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) {
        throw Error(ErrorClass::kCannotCreate, str("cannot replace ", path, ": ", reason(errno)),
                    "check its permissions");
      }
    }
  });
}

void ZarrWriter::write(const std::string& array, std::span<const int64_t> index, const at::Tensor& values) const {
  const auto found =
      std::find_if(arrays_.begin(), arrays_.end(), [&](const ZarrArray& known) { return known.name == array; });
  VH_ASSERT(found != arrays_.end() && is_in_grid(*found, {index.begin(), index.end()}) && values.is_cpu() &&
                values.is_contiguous() && values.scalar_type() == found->type &&
                values.sizes() == at::IntArrayRef(found->chunk),
            str("chunk ", join(index), " of ", array, " in ", folder_));
  const std::string path = folder_ + "/" + found->chunk_path(index);
  make_folder_of(path);
  const std::vector<char> frame = compressed(values);
  PosixFile file(path, PosixFile::Access::kCreate);
  file.write(0, frame.data(), std::ssize(frame));
  file.close();
}

void ZarrWriter::finish() {
  comm::agreed(group_, [&] { sync_file_system_of(folder_); });
  comm::agreed_on_rank_0(group_, [&] {
    ZarrJson consolidated = ZarrJson::object();
    for (const ZarrArray& array : arrays_) {
      const ZarrJson json = zarr_json(array);
      write_metadata(folder_ + "/" + metadata_path(array), json);
      consolidated[array.name] = json;
    }
    const ZarrJson inline_metadata = {
        {"kind", "inline"}, {"must_understand", false}, {"metadata", std::move(consolidated)}};
    write_metadata(folder_ + "/" + kZarrMetadata, {{"zarr_format", 3},
                                                   {"node_type", "group"},
                                                   {"attributes", attributes_},
                                                   {"consolidated_metadata", inline_metadata}});
    sync_folder_of(folder_ + "/" + kZarrMetadata);
  });
}

}  // namespace vit_hybrid::data
