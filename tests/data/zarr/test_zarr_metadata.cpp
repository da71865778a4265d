// Metadata of Zarr stores: as zarr-python 3.1.6 (numcodecs 0.16.6) writes them, each refusal, and each kind of damage.
#include "data/zarr/zarr_metadata.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "src/base/error.h"
#include "src/base/text.h"
#include "tests/support/contains.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::data {
namespace {

namespace fs = std::filesystem;
using CodecKind = ChunkFilter;
using testing::contains;
using testing::ScratchFolder;

constexpr const char* kGroupV2 = R"({"zarr_format": 2})";
constexpr const char* kGroupV3 = R"({"attributes": {"source": "test"}, "zarr_format": 3, "node_type": "group"})";

// create_array(shape=(4, 6, 8), chunks=(2, 6, 4), dtype="f4", filters=[Shuffle(4)], compressors=Zlib(1))
constexpr const char* kArrayTextV2 = R"({"shape": [4, 6, 8], "chunks": [2, 6, 4], "dtype": "<f4", "fill_value": 0.0,
  "order": "C", "filters": [{"id": "shuffle", "elementsize": 4}], "dimension_separator": ".",
  "compressor": {"id": "zlib", "level": 1}, "zarr_format": 2})";

// The same of v3 with filters=None, compressors=ZstdCodec(), dimension_names=["time", None, "lon"]
constexpr const char* kArrayTextV3 = R"({"shape": [4, 6, 8], "data_type": "float32", "chunk_grid": {"name": "regular",
  "configuration": {"chunk_shape": [2, 6, 4]}}, "chunk_key_encoding": {"name": "default", "configuration":
  {"separator": "/"}}, "fill_value": 0.0, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}},
  {"name": "zstd", "configuration": {"level": 0, "checksum": false}}], "attributes": {"units": "K"},
  "dimension_names": ["time", null, "lon"], "zarr_format": 3, "node_type": "array", "storage_transformers": []})";

// shards=(2, 6, 8), chunks=(1, 3, 4): what takes the place of the codecs above.
constexpr const char* kShards = R"([{"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 3, 4], "codecs":
  [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd", "configuration": {"level": 0, "checksum":
  false}}], "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
  "index_location": "end"}}])";

void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// The array of `text` with this change of its values, in a store of its own.
ZarrArray array_of(const std::string& text, const std::string& change) {
  ZarrJson json = ZarrJson::parse(text);
  json.update(ZarrJson::parse(change));
  const bool is_v3 = json["zarr_format"] == 3;
  const ScratchFolder folder;
  write_file(folder.file(is_v3 ? "zarr.json" : ".zgroup"), is_v3 ? kGroupV3 : kGroupV2);
  write_file(folder.file(is_v3 ? "a/zarr.json" : "a/.zarray"), json.dump());
  const ZarrStore store = read_zarr_store(folder.path());
  REQUIRE(store.arrays.size() == 1);
  CHECK(store.arrays.front().name == "a");
  return store.arrays.front();
}

ZarrArray array_v2(const std::string& change) {
  return array_of(kArrayTextV2, change);
}
ZarrArray array_v3(const std::string& change) {
  return array_of(kArrayTextV3, change);
}

std::string codecs_v3(const std::string& codecs) {
  return R"({"codecs": [)" + codecs + "]}";
}

constexpr const char* kBytesCodec = R"({"name": "bytes", "configuration": {"endian": "little"}})";

// v3's codecs of bytes behind kBytesCodec.
ZarrArray coded(const std::string& codec) {
  return array_v3(codecs_v3(str(kBytesCodec, ", ", codec)));
}

ZarrArray sharded(const std::string& change) {
  ZarrJson codecs = ZarrJson::parse(kShards);
  codecs[0]["configuration"].update(ZarrJson::parse(change));
  return array_v3(ZarrJson{
      {"chunk_grid", {{"name", "regular"}, {"configuration", {{"chunk_shape", {2, 6, 8}}}}}},
      {"codecs",
       codecs}}.dump());
}

template <class Function>
std::string damage(Function&& function) {
  const Error error = testing::thrown_error(function);
  CHECK(error.error_class() == ErrorClass::kBadData);
  CHECK(error.message().size() < 1000);
  return error.message();
}

// What is said of a store with this one file.
std::string damage_of(const std::string& name, const std::string& text) {
  const ScratchFolder folder;
  write_file(folder.file(name), text);
  return damage([&] { read_zarr_store(folder.path()); });
}

const std::vector<int64_t> kOrigin = {0, 3, 1};

}  // namespace

TEST_CASE("zarr metadata: a v2 group, walked and consolidated") {
  const std::string attributes =
      R"({"_ARRAY_DIMENSIONS": ["time", "lat", "lon"], "missing_value": NaN, "q": "a\"NaN"})";
  const ScratchFolder walked;
  const ScratchFolder consolidated;
  write_file(walked.file(".zgroup"), kGroupV2);
  write_file(walked.file(".zattrs"), R"({"low": -Infinity})");
  write_file(walked.file("sub/.zgroup"), kGroupV2);
  write_file(walked.file("sub/t/.zarray"), kArrayTextV2);
  write_file(walked.file("a/.zarray"), kArrayTextV2);
  write_file(walked.file("a/.zattrs"), attributes);
  write_file(walked.file("a/0.0.0"), "no metadata");
  write_file(walked.file("no group/b/.zarray"), kArrayTextV2);
  write_file(consolidated.file(".zmetadata"), std::string(R"({"zarr_consolidated_format": 1, "metadata": {)") +
                                                  R"(".zgroup": {"zarr_format": 2}, ".zattrs": {"low": -Infinity}, )" +
                                                  R"("sub/.zgroup": {"zarr_format": 2}, "sub/t/.zarray": )" +
                                                  kArrayTextV2 + R"(, "a/.zarray": )" + kArrayTextV2 +
                                                  R"(, "a/.zattrs": )" + attributes + "}}");
  for (const ScratchFolder* folder : {&walked, &consolidated}) {
    CHECK(is_zarr_store(folder->path()));
    const ZarrStore store = read_zarr_store(folder->path());
    CHECK(store.attributes == ZarrJson{{"low", "-Infinity"}});
    REQUIRE(store.arrays.size() == 2);
    CHECK(store.arrays[1].name == "sub/t");
    CHECK(store.arrays[1].dims.empty());
    CHECK(store.arrays[1].chunk_path(kOrigin) == "sub/t/0.3.1");
    const ZarrArray& array = store.arrays[0];
    CHECK(array.name == "a");
    CHECK(array.refused.empty());
    CHECK(array.shape == std::vector<int64_t>{4, 6, 8});
    CHECK(array.chunk == std::vector<int64_t>{2, 6, 4});
    CHECK(array.shard.empty());
    CHECK((array.type == at::kFloat));
    CHECK_FALSE(array.is_swapped);
    CHECK((array.codecs == std::vector<ZarrCodec>{{CodecKind::kShuffle, 4}, {CodecKind::kDeflate}}));
    CHECK(array.fill_value == 0.0);
    CHECK(array.dims == std::vector<std::string>{"time", "lat", "lon"});
    CHECK(array.attributes["missing_value"] == "NaN");
    CHECK(array.attributes["q"] == "a\"NaN");
  }
}

TEST_CASE("zarr metadata: arrays in the order of their names, which is not that of their files") {
  const ScratchFolder folder;
  const std::string array = kArrayTextV2;
  write_file(folder.file(".zmetadata"),
             R"({"metadata": {"a/.zarray": )" + array + R"(, "a-b/.zarray": )" + array + "}}");
  const ZarrStore store = read_zarr_store(folder.path());
  REQUIRE(store.arrays.size() == 2);
  CHECK(store.arrays[0].name == "a");
  CHECK(store.arrays[1].name == "a-b");
}

TEST_CASE("zarr metadata: a v3 group, walked and consolidated") {
  const ScratchFolder walked;
  const ScratchFolder consolidated;
  write_file(walked.file("zarr.json"), kGroupV3);
  write_file(walked.file("sub/zarr.json"), kGroupV3);
  write_file(walked.file("sub/t/zarr.json"), kArrayTextV3);
  write_file(walked.file("a/zarr.json"), kArrayTextV3);
  write_file(consolidated.file("zarr.json"),
             std::string(R"({"attributes": {"source": "test"}, "zarr_format": 3, "consolidated_metadata": {)") +
                 R"("kind": "inline", "must_understand": false, "metadata": {"a": )" + kArrayTextV3 + R"(, "sub": )" +
                 kGroupV3 + R"(, "sub/t": )" + kArrayTextV3 + R"(}}, "node_type": "group"})");
  for (const ScratchFolder* folder : {&walked, &consolidated}) {
    CHECK(is_zarr_store(folder->path()));
    const ZarrStore store = read_zarr_store(folder->path());
    CHECK(store.attributes == ZarrJson{{"source", "test"}});
    REQUIRE(store.arrays.size() == 2);
    CHECK(store.arrays[1].name == "sub/t");
    CHECK(store.arrays[1].chunk_path(kOrigin) == "sub/t/c/0/3/1");
    const ZarrArray& array = store.arrays[0];
    CHECK(array.refused.empty());
    CHECK(array.chunk == std::vector<int64_t>{2, 6, 4});
    CHECK((array.codecs == std::vector<ZarrCodec>{{CodecKind::kZstd}}));
    CHECK(array.dims == std::vector<std::string>{"time", "", "lon"});
    CHECK(array.attributes == ZarrJson{{"units", "K"}});
  }
}

TEST_CASE("zarr metadata: types and orders of bytes") {
  struct Type {
    const char* v2;
    const char* v3;
    at::ScalarType type;
  };
  for (const Type& type :
       {Type{"f2", "float16", at::kHalf}, Type{"f4", "float32", at::kFloat}, Type{"f8", "float64", at::kDouble},
        Type{"i1", "int8", at::kChar}, Type{"i2", "int16", at::kShort}, Type{"i4", "int32", at::kInt},
        Type{"i8", "int64", at::kLong}, Type{"u1", "uint8", at::kByte}}) {
    const bool is_byte = type.v2[1] == '1';
    for (const std::string order : {is_byte ? "|" : "<", ">"}) {
      const ZarrArray array = array_v2(R"({"dtype": ")" + order + type.v2 + "\"}");
      CHECK((array.type == type.type));
      CHECK(array.is_swapped == (order == ">" && !is_byte));
      CHECK(array.refused.empty());
    }
    for (const std::string order : {"little", "big"}) {
      const std::string codecs = R"("codecs": [{"name": "bytes", "configuration": {"endian": ")" + order + "\"}}]}";
      const ZarrArray array = array_v3(R"({"data_type": ")" + std::string(type.v3) + "\", " + codecs);
      CHECK((array.type == type.type));
      CHECK(array.is_swapped == (order == "big" && !is_byte));
      CHECK(array.refused.empty());
    }
  }
  CHECK(array_v3(R"({"data_type": "uint8", "codecs": [{"name": "bytes"}]})").refused.empty());
  CHECK(array_v3(R"({"data_type": "uint8", "codecs": ["bytes"]})").refused.empty());
  CHECK(array_v3(R"({"codecs": [{"name": "bytes"}]})").refused == "bytes in the order ''");
  for (const std::string type : {R"("|b1")", R"("<u2")", R"("<u4")", R"("<u8")", R"("<c8")", R"("|S5")", R"("<U5")",
                                 R"("<m8[s]")", R"("|O")", R"([["x","<f4"]])", R"("")", R"("<")", "null"}) {
    CHECK(array_v2(R"({"dtype": )" + type + R"(, "fill_value": ""})").refused == "values of type " + type);
  }
  for (const std::string type : {R"("bool")", R"("uint16")", R"("complex64")", R"("string")", R"("r16")", R"("f4")",
                                 R"({"configuration":{"scale_factor":6,"unit":"h"},"name":"numpy.datetime64"})"}) {
    CHECK(array_v3(R"({"fill_value": [0, 0], "data_type": )" + type + "}").refused == "values of type " + type);
  }
}

TEST_CASE("zarr metadata: dates of NumPy are numbers of their unit") {
  for (const auto& [unit, name] :
       {std::pair<std::string, std::string>("s", "seconds"), {"ns", "nanoseconds"}, {"D", "days"}, {"m", "minutes"}}) {
    for (const ZarrArray& array :
         {array_v2(R"({"dtype": "<M8[)" + unit + R"(]", "fill_value": null})"),
          array_v3(R"({"data_type": {"name": "numpy.datetime64", "configuration": {"unit": ")" + unit +
                   R"(", "scale_factor": 1}}})")}) {
      CHECK(array.refused.empty());
      CHECK((array.type == at::kLong));
      CHECK(array.attributes.at("units").get<std::string>() == name + " since 1970-01-01");
    }
  }
  CHECK(array_v2(R"({"dtype": "<M8[Y]", "fill_value": null})").refused == "dates in units of 'Y'");
}

TEST_CASE("zarr metadata: codecs") {
  const auto v2 = [](const std::string& compressor) {
    return array_v2(R"({"filters": null, "compressor": )" + compressor + "}");
  };
  CHECK(v2("null").codecs.empty());
  CHECK(v2(R"({"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0})").codecs.front().filter ==
        CodecKind::kBlosc);
  CHECK(v2(R"({"id": "zstd", "level": 3, "checksum": true})").codecs.front().filter == CodecKind::kZstd);
  CHECK(v2(R"({"id": "lz4", "acceleration": 1})").codecs.front().filter == CodecKind::kLz4);
  CHECK(v2(R"({"id": "gzip", "level": 1})").codecs.front().filter == CodecKind::kDeflate);
  CHECK(v2(R"({"id": "bz2", "level": 1})").refused == "codec 'bz2'");
  CHECK(v2(R"({"id": "crc32"})").refused == "codec 'crc32'");
  CHECK(v2(R"({"id": "crc32c"})").codecs.front().filter == CodecKind::kCrc32c);
  CHECK(v2(R"({"id": "crc32c", "location": "start"})").refused == "codec 'crc32c' before the bytes");
  CHECK(array_v2(R"({"filters": [{"id": "bitround", "keepbits": 10}]})").refused.empty());  // nothing is to be undone
  CHECK(array_v2(R"({"filters": [{"id": "quantize", "digits": 3, "dtype": "<f4"}]})").refused == "codec 'quantize'");
  CHECK(array_v2(R"({"filters": [{"id": "delta", "dtype": "<f4", "astype": "<f4"}]})").refused == "codec 'delta'");

  const auto gzip = coded(R"({"name": "gzip", "configuration": {"level": 1}})");
  CHECK((gzip.codecs == std::vector<ZarrCodec>{{CodecKind::kDeflate}}));
  const auto blosc = coded(R"({"name": "blosc", "configuration": {"typesize": 4, "cname": "lz4", "clevel": 5,
                              "shuffle": "shuffle", "blocksize": 0}}, {"name": "crc32c"})");
  CHECK((blosc.codecs == std::vector<ZarrCodec>{{CodecKind::kBlosc}, {CodecKind::kCrc32c}}));
  const auto wrapped = coded(R"({"name": "numcodecs.shuffle", "configuration": {"elementsize": 2}},
                                {"name": "numcodecs.zlib", "configuration": {}}, {"name": "numcodecs.lz4"},
                                {"name": "numcodecs.blosc"}, {"name": "numcodecs.zstd"})");
  CHECK((wrapped.codecs == std::vector<ZarrCodec>{{CodecKind::kShuffle, 2},
                                                  {CodecKind::kDeflate},
                                                  {CodecKind::kLz4},
                                                  {CodecKind::kBlosc},
                                                  {CodecKind::kZstd}}));
  CHECK(wrapped.refused.empty());
  const auto usual = coded(R"({"name": "numcodecs.shuffle", "configuration": {}})");
  CHECK((usual.codecs == std::vector<ZarrCodec>{{CodecKind::kShuffle, 4}}));
  CHECK(coded(R"({"name": "numcodecs.bz2"})").refused == "codec 'numcodecs.bz2'");
  CHECK(coded(R"({"name": "bytes"})").refused == "codec 'bytes'");

  const auto before = [](const std::string& codec) { return array_v3(codecs_v3(codec + ", " + kBytesCodec)).refused; };
  CHECK(before(R"({"name": "transpose", "configuration": {"order": [0, 1, 2]}})").empty());
  CHECK(before(R"({"name": "transpose", "configuration": {"order": [2, 1, 0]}})") == "codec 'transpose'");
  CHECK(before(R"({"name": "transpose", "configuration": {"order": "F"}})") == "codec 'transpose'");
  CHECK(before(R"({"name": "numcodecs.bitround", "configuration": {"keepbits": 10}})").empty());
  CHECK(before(R"({"name": "numcodecs.delta", "configuration": {}})") == "codec 'numcodecs.delta'");
  CHECK(before(R"({"name": "zstd"})") == "codec 'zstd'");
  CHECK(array_v3(codecs_v3("")).refused == "no codec that makes bytes of values");
}

TEST_CASE("zarr metadata: shards") {
  const ZarrArray array = sharded("{}");
  CHECK(array.refused.empty());
  CHECK(array.shard == std::vector<int64_t>{2, 6, 8});
  CHECK(array.chunk == std::vector<int64_t>{1, 3, 4});
  CHECK((array.codecs == std::vector<ZarrCodec>{{CodecKind::kZstd}}));
  CHECK(array.shard_index_at_end);
  CHECK(array.shard_index_has_checksum);
  CHECK_FALSE(sharded(R"({"index_location": "start"})").shard_index_at_end);
  const ZarrArray unchecked =
      sharded(R"({"index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]})");
  CHECK_FALSE(unchecked.shard_index_has_checksum);
  CHECK(unchecked.refused.empty());
  CHECK(sharded(R"({"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]})").is_swapped);

  for (const char* change :
       {R"({"index_codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "crc32c"}]})",
        R"({"index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd"}]})",
        R"({"index_codecs": []})", R"({"index_codecs": ["bytes", "crc32c", "crc32c"]})",
        R"({"index_location": "middle"})"}) {
    CHECK(contains(sharded(change).refused, "an index of shards"));
  }
  CHECK(sharded(R"({"codecs": )" + std::string(kShards) + "}").refused == "shards in shards");
  const std::string around = std::string(kShards).substr(1, std::string(kShards).size() - 2) + R"(, {"name": "gzip"})";
  CHECK(array_v3(codecs_v3(around)).refused == "codec 'gzip' of whole shards");
  CHECK(contains(damage([] { sharded(R"({"chunk_shape": [1, 4, 4]})"); }), "shards of (2, 6, 8) with chunks of (1, 4"));
  CHECK(contains(damage([] { sharded(R"({"chunk_shape": [1, 3]})"); }), "chunks of (1, 3)"));
  CHECK(contains(damage([] { sharded(R"({"chunk_shape": [1, 0, 4]})"); }), "is 0"));
  const auto huge = array_v3(R"({"shape": [1099511627776], "dimension_names": null, "chunk_grid": {"name": "regular",
    "configuration": {"chunk_shape": [1099511627776]}}, "codecs": [{"name": "sharding_indexed", "configuration":
    {"chunk_shape": [1], "codecs": ["bytes"], "index_codecs": ["bytes"]}}], "data_type": "uint8"})");
  CHECK_FALSE(huge.refused.empty());
}

TEST_CASE("zarr metadata: values of missing chunks") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto fill = [](const std::string& type, const std::string& value) {
    return array_v3(R"({"data_type": ")" + type + R"(", "fill_value": )" + value + "}").fill_value;
  };
  CHECK(std::isnan(fill("float32", R"("NaN")").value()));
  CHECK(std::isnan(fill("float32", R"("0x7fc00000")").value()));
  CHECK(fill("float32", R"("0x3fc00000")") == 1.5);
  CHECK(fill("float16", R"("0x3e00")") == 1.5);
  CHECK(fill("float64", R"("0x3ff8000000000000")") == 1.5);
  CHECK(fill("float64", R"("Infinity")") == kInfinity);
  CHECK(fill("float64", R"("-Infinity")") == -kInfinity);
  CHECK(fill("float32", "-2.5") == -2.5);
  CHECK(fill("int64", "-9223372036854775808") == -0x1p63);  // xarray's of times
  CHECK(fill("int16", "-32768") == -32768.0);
  CHECK(fill("uint8", "255") == 255.0);
  for (const char* value : {R"("0x7fc0")", R"("0x7fc000zz")", R"("1.5")", "true", "[]", "{}"}) {
    CHECK_FALSE(fill("float32", value).has_value());
  }
  CHECK_FALSE(fill("int16", "32768").has_value());
  CHECK_FALSE(fill("int16", "0.5").has_value());
  CHECK_FALSE(fill("int64", "9223372036854775807").has_value());  // no double
  CHECK_FALSE(fill("uint8", "-1").has_value());
  CHECK_FALSE(fill("int32", R"("NaN")").has_value());
  CHECK(std::isnan(array_v2(R"({"fill_value": null})").fill_value.value()));
  CHECK_FALSE(array_v2(R"({"fill_value": null, "dtype": "<i4"})").fill_value.has_value());
  CHECK(array_v2(R"({"fill_value": "-Infinity"})").fill_value == -kInfinity);
}

TEST_CASE("zarr metadata: files of chunks") {
  const std::vector<int64_t> none;
  CHECK(array_v2(R"({"dimension_separator": "/"})").chunk_path(kOrigin) == "a/0/3/1");
  ZarrJson json = ZarrJson::parse(kArrayTextV2);
  json.erase("dimension_separator");  // earlier than zarr-python 2.8
  const ScratchFolder folder;
  write_file(folder.file(".zgroup"), kGroupV2);
  write_file(folder.file("a/.zarray"), json.dump());
  CHECK(read_zarr_store(folder.path()).arrays.front().chunk_path(kOrigin) == "a/0.3.1");
  CHECK(array_v2(R"({"shape": [], "chunks": []})").chunk_path(none) == "a/0");

  const auto keys = [](const std::string& encoding) { return array_v3(R"({"chunk_key_encoding": )" + encoding + "}"); };
  CHECK(keys(R"({"name": "default"})").chunk_path(kOrigin) == "a/c/0/3/1");
  CHECK(keys(R"("default")").chunk_path(kOrigin) == "a/c/0/3/1");
  CHECK(keys(R"({"name": "default", "configuration": {"separator": "."}})").chunk_path(kOrigin) == "a/c.0.3.1");
  CHECK(keys(R"({"name": "v2"})").chunk_path(kOrigin) == "a/0.3.1");
  CHECK(keys(R"({"name": "v2", "configuration": {"separator": "/"}})").chunk_path(kOrigin) == "a/0/3/1");
  CHECK(keys(R"({"name": "v2"})").chunk_path(none) == "a/0");
  CHECK(keys(R"({"name": "default"})").chunk_path(none) == "a/c");
  CHECK(keys(R"({"name": "suffix"})").refused == "chunk keys 'suffix'");
  CHECK(contains(damage([&] { keys(R"({"name": "v2", "configuration": {"separator": "/../"}})"); }), "'/../'"));
  CHECK(contains(damage([] { array_v2(R"({"dimension_separator": ""})"); }), "'.' or '/'"));
}

TEST_CASE("zarr metadata: what is sound but cannot be read is refused for its array alone") {
  CHECK(array_v2(R"({"order": "F"})").refused == "order F");
  CHECK(array_v2(R"({"order": "F", "shape": [4], "chunks": [2]})").refused.empty());
  CHECK(array_v2(R"({"chunks": [1, 512, 262144]})").refused.empty());
  CHECK(array_v2(R"({"chunks": [1, 512, 262145]})").refused == "chunks of (1, 512, 262145) values, more than 512 MiB");
  CHECK_FALSE(array_v2(R"({"chunks": [9223372036854775807, 9, 9]})").refused.empty());
  CHECK(array_v3(R"({"chunk_grid": {"name": "rectilinear"}})").refused == "chunk grid 'rectilinear'");
  CHECK(array_v3(R"({"storage_transformers": [{"name": "x"}]})").refused == "storage transformers");
  CHECK(array_v3(R"({"mask": 1})").refused == "key 'mask'");
  CHECK(array_v3(R"({"mask": {"must_understand": true}})").refused == "key 'mask'");
  CHECK(array_v3(R"({"mask": {"must_understand": false}})").refused.empty());
}

TEST_CASE("zarr metadata: damaged arrays") {
  const auto v2 = [](const std::string& change) { return damage([&] { array_v2(change); }); };
  CHECK(contains(v2(R"({"shape": [4, -6, 8]})"), "/a/.zarray: 'shape'[1] is -6, a whole number from 0 to"));
  CHECK(contains(v2(R"({"shape": [4, 6.0, 8]})"), "is 6.0"));
  CHECK(contains(v2(R"({"shape": [4, 9223372036854775808, 8]})"), "is 9223372036854775808"));
  CHECK(contains(v2(R"({"shape": [4, true, 8]})"), "is true"));
  CHECK(contains(v2(R"({"shape": [4294967296, 4294967296, 0]})"), "more values than can be counted"));
  CHECK(contains(v2(R"({"shape": 4})"), "is no list"));
  CHECK(contains(v2(R"({"shape": [4, 6]})"), "the shape (4, 6) and chunks of (2, 6, 4)"));
  CHECK(contains(v2(R"({"chunks": [2, 0, 4]})"), "'chunks'[1] is 0"));
  CHECK(contains(v2(R"({"zarr_format": 1})"), "'zarr_format' is not 2"));
  CHECK(contains(v2(R"({"order": 1})"), "'order' is no text"));
  CHECK(contains(v2(R"({"filters": {}})"), "'filters' is no list"));
  CHECK(contains(v2(R"({"filters": [null]})"), "'filters'[0] is no object"));
  CHECK(contains(v2(R"({"compressor": {"level": 1}})"), "'compressor' has no 'id'"));
  CHECK(contains(v2(R"({"filters": [{"id": "shuffle", "elementsize": 0}]})"), "'elementsize' is 0"));
  const std::string many = ZarrJson(std::vector<int>(33, 1)).dump();
  CHECK(contains(v2(R"({"shape": )" + many + R"(, "chunks": )" + many + "}"), "no list of at most 32 items"));
  const auto v3 = [](const std::string& change) { return damage([&] { array_v3(change); }); };
  CHECK(contains(v3(R"({"chunk_grid": {"name": "regular"}})"), "'chunk_grid' has no 'chunk_shape'"));
  CHECK(contains(v3(R"({"codecs": [7]})"), "'codecs'[0] is no object"));
  CHECK(contains(v3(R"({"codecs": [{"name": "bytes", "configuration": []}]})"), "'configuration' is no object"));
  CHECK(contains(v3(R"({"node_type": "tree"})"), "neither array nor group"));
  CHECK(contains(v3(R"({"attributes": []})"), "'attributes' is no object"));
}

TEST_CASE("zarr metadata: damaged stores") {
  const ScratchFolder folder;
  CHECK(testing::thrown_error([&] { read_zarr_store(folder.file("none")); }).error_class() ==
        ErrorClass::kMissingInput);
  CHECK_FALSE(is_zarr_store(folder.file("none")));
  CHECK_FALSE(is_zarr_store(folder.path()));
  CHECK(contains(damage([&] { read_zarr_store(folder.path()); }), "is no Zarr store"));
  write_file(folder.file("file"), "CDF");
  CHECK_FALSE(is_zarr_store(folder.file("file")));
  CHECK(contains(damage([&] { read_zarr_store(folder.file("file")); }), "is no Zarr store"));

  CHECK(contains(damage_of("zarr.json", kArrayTextV3), "a single array"));
  CHECK(contains(damage_of(".zarray", kArrayTextV2), "a single array"));
  CHECK(contains(damage_of(".zmetadata", R"({"metadata": {".zarray": {}}})"), "a single array"));
  CHECK(contains(damage_of("zarr.json", ""), "is no JSON"));
  CHECK(contains(damage_of("zarr.json", "\"a\\"), "is no JSON"));
  CHECK(contains(damage_of("zarr.json", "{\"a\": \xff}"), "is no JSON"));
  CHECK(contains(damage_of("zarr.json", "{\"a\": NaNNaN}"), "is no JSON"));
  CHECK(contains(damage_of("zarr.json", "{\"a\": 1e999}"), "is no JSON"));
  CHECK(contains(damage_of("zarr.json", "NaN"), "is no object"));
  CHECK(contains(damage_of("zarr.json", std::string(10'000'000, '[')), "nests deeper"));
  CHECK(contains(damage_of(".zmetadata", "{}"), "has no 'metadata'"));
  CHECK(contains(damage_of(".zmetadata", R"({"metadata": []})"), "is no object"));
  CHECK(contains(damage_of(".zattrs", "[]"), "is no object"));

  const ScratchFolder large;  // a hole in place of 64 MiB
  write_file(large.file(".zmetadata"), "{");
  fs::resize_file(large.file(".zmetadata"), (int64_t{64} << 20) + 1);
  CHECK(contains(damage([&] { read_zarr_store(large.path()); }), "has more than 67108864 bytes"));
}

TEST_CASE("zarr metadata: very many keys take no time") {
  std::string text = R"({"zarr_format": 3, "node_type": "group", "attributes": {)";
  for (int i = 0; i < 300'000; ++i) {
    text += '"' + std::to_string(i) + "\": 0, ";
  }
  const ScratchFolder folder;
  write_file(folder.file("zarr.json"), text + R"("last": 0}})");
  CHECK(read_zarr_store(folder.path()).attributes.size() == 300'001);
}

TEST_CASE("zarr metadata: no name and no link leads out of the store") {
  for (const std::string name : {"../a", "/a", "a/../../b", "a//b", "a/", ".", "..", "./a", "..\\u0000", ""}) {
    CHECK(contains(damage_of(".zmetadata", R"({"metadata": {")" + name + "/.zarray\": " + kArrayTextV2 + "}}"),
                   "no path in the store"));
    CHECK(contains(
        damage_of("zarr.json", R"({"zarr_format": 3, "node_type": "group", "consolidated_metadata": {"metadata": {")" +
                                   name + "\": " + kArrayTextV3 + "}}}"),
        "no path in the store"));
  }
  const ScratchFolder outside;
  write_file(outside.file("a/.zarray"), kArrayTextV2);
  write_file(outside.file("zarr.json"), kGroupV3);
  const ScratchFolder walked;
  write_file(walked.file(".zgroup"), kGroupV2);
  fs::create_directory_symlink(outside.file("a"), walked.file("a"));
  fs::create_directory_symlink(walked.path(), walked.file("loop"));
  const ScratchFolder consolidated;
  write_file(consolidated.file(".zmetadata"),
             R"({"metadata": {"a/.zarray": )" + std::string(kArrayTextV2) + R"(, "loop/a/.zarray": {}}})");
  fs::create_directory_symlink(outside.file("a"), consolidated.file("a"));
  fs::create_directory_symlink(consolidated.path(), consolidated.file("loop"));
  for (const ScratchFolder* folder : {&walked, &consolidated}) {
    const ZarrStore store = read_zarr_store(folder->path());
    REQUIRE(store.arrays.size() == 2);
    CHECK(contains(store.arrays[0].refused, "a symbolic link"));
    CHECK(contains(store.arrays[1].refused, "a symbolic link"));
  }
  const ScratchFolder linked;  // the folder itself may be behind a link
  fs::create_directory_symlink(walked.path(), linked.file("store"));
  CHECK(read_zarr_store(linked.file("store")).arrays.size() == 2);
  fs::create_symlink(outside.file("zarr.json"), linked.file("zarr.json"));
  CHECK(contains(damage([&] { read_zarr_store(linked.path()); }), "is a symbolic link"));
}

}  // namespace vit_hybrid::data
