// Files that ranks read from folders of their nodes: whether all see the same bytes.
#pragma once

#include <string>
#include <vector>

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

/// Throws Error(kBadData) on all ranks, naming a file and two ranks with their hosts, where a file is another one on a
/// rank than on rank 0, though of the same size. What is compared is the head of each file and pieces spread over it,
/// about 300 KiB of each of 32 files, less of each of more, but 8 KiB; ranks of a node that see the same inode leave
/// the reading to one of them. Collective over `group`; what cannot be read is agreed too: Error(kMissingInput),
/// Error(kIo).
void require_same_files(const comm::MpiGroup& group, const std::vector<std::string>& paths);

}  // namespace vit_hybrid::data
