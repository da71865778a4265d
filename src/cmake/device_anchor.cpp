// Keeps a device library from being empty, which some linkers refuse.
namespace vit_hybrid {
namespace {
[[maybe_unused]] constexpr int kDeviceLibraryAnchor = 0;
}
}  // namespace vit_hybrid
