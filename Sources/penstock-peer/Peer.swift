// penstock-peer: a server for the demo, the tests and the benchmarks.
//
// It runs in one of two ways. As a *server* it has a few services, over HTTP/2 (with nghttp2) or HTTP/1.1
// (`ServerConnection`), with the protocol gRPC, gRPC-Web or Connect (`ServerFraming`). As a *scripted peer*
// it sends the bytes that a script describes, which may break any rule. It makes these bytes itself, because
// an HTTP library would refuse to send them.
//
// One thread drives one epoll loop. In each turn the loop reads all input, handles it, and writes once. For
// each stream the server keeps at most one message in each direction, a window of bytes that were not read
// yet, and 64 KiB that wait for the client's window. Because the program is a tool for tests, it has no
// authentication, logging or configuration files.

import CPenstockSystem
import PenstockWire

/// The entry of the program. When an executable target is built, its function `main` is renamed to this
/// symbol.
@_cdecl("penstock_peer_main")
public func penstockPeerMain(
  _ argc: Int32, _ argv: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) -> Int32 {
  var options = Options()
  switch options.read(argc, argv) {
  case .help:
    Console.out.put(Options.usage)
    Console.out.flush()
    return 0
  case .wrong(let why):
    return Console.complain(why, exit: 2)
  case .ok: break
  }
  Signals.install()
  guard let loop = Loop() else { return Console.complain(Text("epoll is not to be had"), exit: 1) }
  if let failure = loop.watchSignals() { return Console.complain(failure, exit: 1) }
  var script: Script?
  if let path = options.script {
    switch Script.load(path, answerType: options.answerType) {
    case .failed(let why): return Console.complain(why, exit: 2)
    case .loaded(let loaded): script = loaded
    }
  }
  switch Listener.open(loop, options, script) {
  case .failed(let why): return Console.complain(why, exit: 1)
  case .open(let listener):
    if options.exitWithStdin, !loop.watchStdin() {
      listener.close()
      return Console.complain(Text("standard input is neither a pipe nor a terminal"), exit: 2)
    }
    listener.announce()
    loop.run()
    listener.close()
    loop.closeAll()
    Console.out.flush()
    return 0
  }
}
