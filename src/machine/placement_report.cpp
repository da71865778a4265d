// What each rank finds about itself, brought together and printed.
#include "parallel/comm/failure.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/own_processors.h"
#include "src/base/text.h"
#include "src/machine/placement.h"

namespace vit_hybrid::train {

namespace {

RankPlacement place_of_this_rank(int threads) {
  const NodeTopology topology = read_topology();
  RankPlacement place = place_rank(topology, allowed_processors(), allowed_memories(), threads);
  place.is_automatic = threads == 0;
  place.node = comm::process_place().node;
  place.host = comm::process_place().host;
  place.node_cores = static_cast<int>(topology.cores_of(job_processors(topology)).size());
  return place;
}

std::string to_text(const RankPlacement& place) {
  return Json::array({place.node, place.host, place.threads, place.is_automatic, place.node_cores,
                      number_list(place.cores), number_list(place.sockets), number_list(place.near_memories),
                      number_list(place.memories)})
      .dump();
}

RankPlacement from_text(const std::string& text) {
  const Json json = Json::parse(text);
  const auto numbers = [&](size_t index) { return parse_number_list(json[index].get<std::string>()); };
  return {json[0], json[1], json[2], json[3], json[4], numbers(5), numbers(6), numbers(7), numbers(8)};
}

}  // namespace

std::vector<RankPlacement> gather_placements(int threads, const comm::MpiGroup& world) {
  std::vector<RankPlacement> ranks;
  for (const std::string& text : world.all_gather(to_text(place_of_this_rank(threads)))) {
    ranks.push_back(from_text(text));
  }
  return ranks;
}

void report_placement(const std::vector<RankPlacement>& ranks) {
  for (const PlacementRemark& remark : placement_remarks(ranks)) {
    const std::string line = "placement: " + remark.text;
    if (remark.kind == PlacementRemark::Kind::kNote) {
      log_line(line);
    } else {
      log_warning(line);
    }
  }
}

}  // namespace vit_hybrid::train
