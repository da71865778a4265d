// Machine files: interpolation of rates, and what is refused of a file.
#include <doctest/doctest.h>

#include <cmath>

#include "src/base/error.h"
#include "src/machine/machine_file.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using namespace vit_hybrid::testing;
using doctest::Approx;

namespace {

Json valid_file() {
  const Json table = {{"unit", "FLOP/s"},
                      {"axes", {{"rows", {10}}, {"inputs", {10, 1000}}, {"outputs", {10, 100, 1000}}}},
                      {"rates", {1e9, 2e9, 4e9, 1e10, 2e10, 4e10}},
                      {"source", "somebody"}};
  const Json messages = {{"unit", "bytes/s"}, {"axes", {{"ranks", {2, 4}}, {"bytes", {1000}}}}, {"rates", {1e9, 2e9}}};
  return {{"format", "vit_hybrid machine 1"},
          {"machine", "a machine"},
          {"device", "cpu"},
          {"cores", 8},
          {"memory", {{"bytes", 1.5e11}, {"source", "somebody else"}}},
          {"populations",
           {{{"ranks", 4},
             {"threads", 2},
             {"operation_s", 0},
             {"types", {{"fp32", {{"product_forward", table}}}}},
             {"messages", {{"all_reduce", messages}}}}}},
          {"between_nodes", {{"bytes_per_s", 1e10}, {"latency_s", 2e-6}}}};
}

std::string file_refusal(const Json& file) {
  return thrown_error([&] { parse_machine_file(file.dump(), "m.json"); }).message();
}

}  // namespace

TEST_CASE("machine file: rates between points are linear in logarithms, and those of the nearest outside") {
  const MachineFile machine = parse_machine_file(valid_file().dump(), "m.json");
  const RateTable& table = machine.populations[0].types.at("fp32").at("product_forward");
  CHECK(table.at({10, 10, 10}) == Approx(1e9));
  CHECK(table.at({10, 10, 1000}) == Approx(4e9));
  CHECK(table.at({10, 1000, 100}) == Approx(2e10));
  CHECK(table.at({10, 100, 10}) == Approx(std::sqrt(1e9 * 1e10)));
  CHECK(table.at({10, 10, std::sqrt(10.0 * 100.0)}) == Approx(std::sqrt(1e9 * 2e9)));
  CHECK(table.at({1, 100, std::sqrt(100.0 * 1000.0)}) == Approx(std::sqrt(std::sqrt(2e9 * 4e9 * 2e10 * 4e10))));
  CHECK(table.at({1e6, 1e6, 1e6}) == Approx(4e10));
  CHECK(table.at({1, 1, 1}) == Approx(1e9));
}

TEST_CASE("machine file: ranks share the memory of their node, or of their GPU") {
  MachineFile machine = parse_machine_file(valid_file().dump(), "m.json");  // of 8 cores, 1.5e11 bytes
  CHECK(machine.bytes_of_rank(4, 1) == 1.5e11 / 4 - (140 << 20));
  CHECK(machine.bytes_of_rank(2000, 1) == 1.0);
  machine.device = "cuda";
  CHECK(machine.bytes_of_rank(4, 1) == 1.5e11);
  CHECK(machine.bytes_of_rank(8, 4) == 1.5e11 / 4);
  CHECK(machine.bytes_of_rank(9, 1) == 1.5e11 / 2);
  machine.memory = {};
  CHECK(machine.bytes_of_rank(4, 1) == 0.0);
}

TEST_CASE("machine file: what is written is read back") {
  const MachineFile machine = parse_machine_file(valid_file().dump(), "m.json");
  CHECK(to_text(parse_machine_file(to_text(machine), "again")) == to_text(machine));
  CHECK(machine.populations[0].types.at("fp32").at("product_forward").source == "somebody");
  CHECK(machine.memory.bytes == 1.5e11);
  CHECK(machine.memory.source == "somebody else");
  CHECK(machine.populations[0].messages.at("all_reduce").at({4, 5}) == Approx(2e9));
  CHECK(machine.between_nodes.bytes_per_s == 1e10);
  CHECK(machine.between_nodes.message_s == 0.0);  // which it does not have
  CHECK_FALSE(machine.between_nodes.byte_s.has_value());
  Json file = valid_file();
  file["between_nodes"]["message_s"] = 1e-6;
  file["between_nodes"]["byte_s"] = 0.0;
  file["between_nodes"]["look_bytes"] = 1e5;
  const MachineFile other = parse_machine_file(to_text(parse_machine_file(file.dump(), "m.json")), "again");
  CHECK(other.between_nodes.message_s == 1e-6);
  CHECK(other.between_nodes.byte_s == 0.0);
  CHECK(other.between_nodes.look_bytes == 1e5);
  CHECK_FALSE(machine.between_nodes.look_bytes.has_value());
  CHECK(machine.cores == 8);
}

TEST_CASE("machine file: the nearest population has the threads, then the ranks") {
  MachineFile machine = parse_machine_file(valid_file().dump(), "m.json");
  machine.populations = {{1, 8, {}, {}}, {8, 1, {}, {}}, {2, 4, {}, {}}, {4, 1, {}, {}}};
  CHECK(machine.nearest(8, 1).ranks == 8);
  CHECK(machine.nearest(3, 1).ranks == 4);
  CHECK(machine.nearest(1, 6).threads == 8);
  CHECK(machine.nearest(64, 4).threads == 4);
}

TEST_CASE("machine file: what is missing or impossible is named") {
  CHECK(contains(file_refusal(Json::array()), "does not begin with \"format\": \"vit_hybrid machine 1\""));
  const auto changed = [](const std::string& pointer, const Json& value) {
    Json file = valid_file();
    const Json::json_pointer place(pointer);
    if (value.is_null()) {
      file.at(place.parent_pointer()).erase(place.back());
    } else {
      file[place] = value;
    }
    return file_refusal(file);
  };
  CHECK(contains(changed("/format", 5), "does not begin with \"format\""));
  CHECK(changed("/cores", nullptr) == "machine file 'm.json': cores is missing");
  CHECK(changed("/cores", 1.5) == "machine file 'm.json': cores is 1.5, no whole number up to 65536");
  CHECK(changed("/device", "tpu") == "machine file 'm.json': device is 'tpu', neither cpu nor cuda");
  CHECK(changed("/populations", Json::array()) == "machine file 'm.json': populations is no list of them");
  CHECK(changed("/populations/0/ranks", 0) ==
        "machine file 'm.json': populations[0].ranks is 0, not a number from 1 to 1e+17");
  const std::string table = "/populations/0/types/fp32/product_forward";
  const std::string name = "machine file 'm.json': populations[0].types.fp32.product_forward";
  CHECK(changed(table + "/rates/0", -1) == name + ".rates[0] is -1, not a number from 1 to 1e+17");
  CHECK(changed(table + "/rates/0", 1e-308) == name + ".rates[0] is 1e-308, not a number from 1 to 1e+17");
  CHECK(changed(table + "/rates/0", 1e30) == name + ".rates[0] is 1e+30, not a number from 1 to 1e+17");
  CHECK(changed(table + "/rates/0", "fast") == name + ".rates[0] is \"fast\", no number");
  CHECK(changed(table + "/rates", {1.0}) == name + ".rates are 1, where the axes have 6 points");
  CHECK(changed(table + "/axes/inputs", {1000, 10}) == name + ".axes.inputs does not ascend");
  CHECK(changed(table + "/axes/inputs", {10, 10}) == name + ".axes.inputs does not ascend");
  CHECK(changed(table + "/axes/inputs", nullptr) == name + ".axes.inputs is missing");
  CHECK(changed(table + "/axes/depth", {10}) == name + ".axes are not 3");
  CHECK(changed(table + "/unit", "GFLOP/s") == name + ".unit is 'GFLOP/s', not FLOP/s");
  CHECK(contains(changed("/populations/0/types/fp32/conv", Json::object()),
                 "fp32.conv is no kind of work that is known"));
  CHECK(contains(changed("/between_nodes/latency_s", -1), "between_nodes.latency_s is -1"));
  CHECK(contains(changed("/between_nodes/message_s", "little"), "between_nodes.message_s is \"little\", no number"));
  CHECK(contains(changed("/between_nodes/byte_s", -1), "between_nodes.byte_s is -1"));
  CHECK(
      contains(changed("/between_nodes/latency_s", 1.7e308), "between_nodes.latency_s is 1.7e+308, not 0 or a number"));
  CHECK(contains(changed("/between_nodes/look_bytes", 0), "between_nodes.look_bytes is 0"));
  CHECK(contains(changed("/coers", 4), "coers is not known here; known are format, machine, device, cores, "));
  CHECK(contains(changed("/populations/0/message", Json::object()), "populations[0].message is not known here"));
  CHECK(contains(changed("/between_nodes/latency", 1), "between_nodes.latency is not known here"));
  CHECK(changed(table + "/src", "?") == name + ".src is not known here; known are unit, axes, rates, source");
  CHECK(contains(changed("/between_nodes/latency_s", 2.0), "latency_s is 2, not 0 or a number from 1e-18 to 1"));
  CHECK(contains(changed("/populations/0/types/fp7", Json::object()), "types.fp7 is not known here; known are fp32"));
  CHECK(
      contains(changed("/populations/1", valid_file()["populations"][0]), "populations[1] has the ranks and threads"));
  CHECK(contains(changed("/a\nb", 1), "'m.json': a\\nb is not known here"));
  const auto refusal_of = [](const std::string& text) {
    const Error error = thrown_error([&] { parse_machine_file(text, "m.json"); });
    CHECK(error.error_class() == ErrorClass::kBadData);
    return error.message();
  };
  CHECK(refusal_of(valid_file().dump().substr(0, 200)) ==
        "machine file 'm.json' ends before its JSON does, after 200 bytes");
  CHECK(contains(refusal_of("{]"), "machine file 'm.json' is no JSON from byte 2 of 2"));
  CHECK(contains(refusal_of("{\"cores\": 1e999}"), "has a number that is too large: number overflow"));
}
