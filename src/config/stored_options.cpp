// stored_options(): the YAML as a table.
#include "src/config/stored_options.h"

#include "src/config/sources.h"

namespace vit_hybrid::train {

std::map<std::string, std::string> stored_options(const std::string& config) {
  std::map<std::string, std::string> texts;
  if (config.empty()) {
    return texts;
  }
  for (const options::Source& source : options::parse_yaml({"the checkpoint's configuration", ""}, config)) {
    for (const options::Entry& entry : source) {
      texts[entry.name] = entry.text;
    }
  }
  return texts;
}

}  // namespace vit_hybrid::train
