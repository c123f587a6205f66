// Where the library comes from is one trait's choice. A dependency that names traits leaves out the default ones unless it
// names `.defaults`, too.

#if Bundled && SystemLibrary
  #error("two libraries: for an installed libpenstock write traits: [\"SystemLibrary\"], without .defaults")
#elseif !Bundled && !SystemLibrary
  #error("no library: write .defaults beside the other traits, as in traits: [.defaults, \"SwiftProtobuf\"]")
#endif
