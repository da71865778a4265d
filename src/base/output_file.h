// Files that are about to be written: what has their name already.
#pragma once

#include <string>

namespace vit_hybrid {

/// Error(kCannotCreate) where `path` is there and `overwrite` is not given, or is no regular file (a folder, a device,
/// a FIFO), which nothing replaces; `option` names it.
void refuse_existing(const std::string& path, bool overwrite, const std::string& option = "--out");

/// Error(kUsage) where `path`, which `option` names, is the file `input` itself, by whatever name: --overwrite is for
/// what an earlier command wrote.
void refuse_input(const std::string& path, const std::string& option, const std::string& input);

}  // namespace vit_hybrid
