// The file that the shared precompiled header is compiled with.
