import PenstockCall
import PenstockChannel
import PenstockNames
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockLink
import PenstockClient

// The options of runtimes, channels and calls, in a table each. A row begins with a comment, which has the
// meaning, and the default if the field's declaration does not have it. Then come the JSON key, the type with
// its bounds, and the field. scripts/options makes docs/options.md from these rows; CONTRIBUTING.md says how
// to add a row.

// ---- penstock_runtime_new: runtime.h ----

public func read(_ reader: JSONReader, into options: inout Runtime.Options) -> Failure? {
  let failure = reader.members { key, option in
    switch key {
    /// Whether the runtime has a thread of its own ("thread"), or the program polls ("host").
    case "mode": option.choice("thread host") { options.mode = $0 == 0 ? .thread : .host }
    /// Whether the thread of a blocking call may drive the loop, as long as few threads wait at the same
    /// time. In host mode it always may.
    case "caller_drives": option.bool { options.callerDrives = $0 }
    /// How long the loop stays free for the next blocking call before the runtime's thread takes it back.
    /// After a series of calls the time is up to 16 times as long, but never longer than until a timer is
    /// due.
    case "linger_us": option.microseconds(0...10_000_000) { options.lingerMicroseconds = $0 }
    /// How long a blocking call that drives the loop polls for a response before it sleeps: this lowers latency and
    /// costs CPU time.
    case "spin_us": option.microseconds(0...1_000_000) { options.spinMicroseconds = $0 }
    /// How many threads of the runtime may run the functions of synchronous interceptors, for calls whose own
    /// thread does not.
    case "max_workers": option.count(1...1024) { options.maxWorkers = UInt32(truncatingIfNeeded: $0) }
    /// How many loops drive the runtime's channels, each with a thread of its own; more than one in mode "thread" only.
    case "loops": option.count(1...64) { options.loops = UInt16(truncatingIfNeeded: $0) }
    default: option.unknown
    }
  }
  guard failure == nil, options.mode == .host, options.loops > 1 else { return failure }
  return reader.member("loops")?.fail(because: ("a host polls one loop only" as StaticString).bytes)
}

// ---- penstock_channel_new: channel.h ----

extension ParsedChannelOptions {
  public mutating func read(_ reader: JSONReader) -> Failure? {
    let failure = reader.members { key, option in
      switch key {
      /// The protocol of the calls; docs/protocols.md compares them.
      case "protocol":
        option.choice("grpc grpc-web grpc-web-text connect") {
          transport.rpc = RPCProtocol(rawValue: UInt8(truncatingIfNeeded: $0)) ?? .grpc
        }
      /// The version of HTTP. "auto": the server chooses it in TLS (ALPN); in cleartext gRPC uses HTTP/2, and the other
      /// protocols HTTP/1.1. gRPC can't use "1.1".
      case "http":
        option.choice("auto 2 1.1") {
          transport.http = HTTPChoice(rawValue: UInt8(truncatingIfNeeded: $0)) ?? .auto
        }
      /// The longest path, with its query, that an HTTP GET may have. Connect calls methods without side
      /// effects by GET, but by POST if the path would be longer. 0: each call is a POST.
      case "max_get_url_bytes": option.bytes(0...1_048_576) { transport.mostURLBytes = $0 }
      /// The largest number of HTTP/1.1 connections to one address; each carries one call at a time, and
      /// further calls wait.
      case "http1_max_connections": option.count(1...65536) { transport.http1Connections = $0 }
      /// How long a connection of HTTP/1.1 is kept without a call; 0: it is closed after each call.
      case "http1_idle_timeout_ms": option.milliseconds(0...86_400_000) { transport.http1IdleTimeout = $0 }
      /// Whether the channel uses TLS. true turns it on, and so does an object with the options below.
      /// Default: true, for a unix socket and an http:// URL false.
      case "tls": readTLS(option)
      /// The authority of the requests. Default: the target's.
      case "authority": option.authority { transport.authority = $0 }
      /// The proxy that connects to the server: "http://user:password@host:port", "socks5://..." or "socks5h://...".
      /// "environment": the one that the process's environment variables name. Default: null, which is none.
      case "proxy": option.proxy { transport.proxy = $0 }
      /// The hosts that are reached without the proxy: names, domains, IP addresses, ranges such as "10.0.0.0/8", or "*".
      /// Default: [].
      case "no_proxy": option.hosts { transport.proxyExceptions = $0 }
      /// The address of this machine from which connections are made: an IP address, or one of each family as
      /// {"ipv4": ..., "ipv6": ...}. A connection to an address of another family fails. Default: the system chooses.
      case "local_address": option.localAddress { transport.sockets.bind($0) }
      /// The network interface through which connections are made (SO_BINDTODEVICE). Before Linux 5.7 this needs
      /// CAP_NET_RAW. Default: the one that the system's routes say.
      case "bind_interface": option.interface { transport.sockets.interface = $0 }
      /// The options of the sockets that the library opens. Default: {}.
      case "socket_options": readSocketOptions(option)
      /// The name of the messages' encoding in the content-type, such as "json" for "application/grpc+json" or
      /// "application/json", for calls whose options and codec name no encoding. Default: "", which stands for "proto".
      case "content_subtype": option.encoding { defaults.contentType = $0 }
      /// The text before "penstock/VERSION" in the user agent.
      case "user_agent": option.ascii { transport.userAgent = $0 }
      /// The time from creation to deadline for calls that have no deadline of their own.
      case "default_deadline_ms": option.deadline { defaults.deadline = $0 }
      /// The size limit of one received message, after decompression.
      case "max_receive_message_bytes": option.bytes { defaults.maxReceiveBytes = $0 }
      /// The size limit of one sent message.
      case "max_send_message_bytes": option.bytes { defaults.maxSendBytes = $0 }
      /// The compression of sent messages. "zstd" needs the system's libzstd.so.1, which is loaded then; only with it does
      /// the channel accept answers in zstd. The name of a compressor that the program has made (compressor.h) is allowed,
      /// too.
      case "compression":
        option.compression {
          defaults.compression = $0
          transport.acceptsZstd = $0 == .zstd
        }
      /// The size from which messages are compressed, if the call compresses: smaller messages go as they are, and those
      /// of this size or more compressed, even where that makes them longer. 0: every message is compressed. Default:
      /// a message is sent compressed where that makes it smaller.
      case "compression_min_bytes":
        option.bytes { defaults.compressionUse = .from(bytes: Int32(clamping: $0)) }
      /// The size limit of one header list, counted as in HTTP/2 (RFC 9113 section 6.5.2).
      case "max_header_list_bytes": option.bytes(1024...1_048_576) { transport.maxHeaderListBytes = $0 }
      /// How long one attempt to connect may take, and one look-up of the target's name.
      case "connect_timeout_ms": option.milliseconds(1...86_400_000) { transport.connectTimeout = $0 }
      /// Whether calls wait, instead of failing, while the channel can't connect. The options of a call may
      /// say otherwise.
      case "wait_for_ready": option.bool { defaults.waitsForReady = $0 }
      /// gRPC's service config: settings of methods, and how calls are spread over addresses; docs/channel.md has its
      /// fields. Default: {}.
      case "service_config": readServiceConfig(option) { transport.service = $0 }
      /// Whether the retry policies of the service config apply. Requests that a server has certainly not processed
      /// are sent again in any case.
      case "retries": option.bool { transport.retries = $0 }
      /// How many bytes of messages a call keeps in case its request has to be sent again. A request with more is sent
      /// once.
      case "replay_bytes": option.bytes { defaults.replayBytes = $0 }
      /// How many bytes of messages all calls of the channel keep for that; a request that finds no room is sent once.
      case "channel_replay_bytes": option.bytes { defaults.channelReplayBytes = $0 }
      /// The largest number of HTTP/2 connections to one address, whatever the service config's
      /// connectionScaling demands.
      case "max_connections_per_subchannel": option.count(1...1024) { transport.mostConnections = $0 }
      /// The largest number of connections of the channel to all addresses together, of HTTP/2 and HTTP/1.1, those that
      /// drain included; 0: without limit. An address that needs one more connection waits until another one ends; one
      /// that has none counts as failed after connect_timeout_ms.
      case "max_connections": option.count(0...65536) { transport.mostConnectionsInAll = $0 }
      /// The largest number of calls that wait for a connection or for a free stream at the same time; 0: without limit. A
      /// further call ends with RESOURCE_EXHAUSTED.
      case "max_pending_calls": option.count(0...1_000_000_000) { transport.mostPendingCalls = $0 }
      /// How many bytes of messages all client streams and bidi calls of the channel together may have given to the library
      /// that are not sent yet; 0: without limit. Beyond it each call has room for one message only: a further one waits,
      /// or gives PENSTOCK_E_WOULD_BLOCK, until that is sent.
      case "max_buffered_bytes": option.bytes { defaults.maxBufferedBytes = $0 }
      /// Whether servers are asked for their health if the service config has a healthCheckConfig.
      case "health_checks": option.bool { transport.checksHealth = $0 }
      /// How old a connection becomes before new calls go to another connection; 0: without limit.
      case "max_connection_age_ms": option.milliseconds(0...2_592_000_000) { transport.maxConnectionAge = $0 }
      /// How long the channel keeps its connections without a call, before it becomes idle; 0: without limit.
      case "idle_timeout_ms": option.milliseconds(0...2_592_000_000) { transport.idleTimeout = $0 }
      /// The wait after the first attempt to connect that fails, counted from the beginning of that attempt. After a
      /// connection that has answered a call, shorter waits double until they have reached it.
      case "initial_backoff_ms": option.milliseconds(1...86_400_000) { transport.backoff.initial = $0 }
      /// The longest wait between the beginnings of two attempts to connect, without its jitter.
      case "max_backoff_ms": option.milliseconds(1...86_400_000) { transport.backoff.most = $0 }
      /// The factor by which each further wait between attempts to connect is longer than the one before.
      case "backoff_multiplier":
        option.number(1...100, "a number from 1 to 100") { transport.backoff.multiplier = $0 }
      /// The largest fraction by which each wait between attempts to connect is made longer or shorter at
      /// random.
      case "backoff_jitter": option.number(0...1, "a number from 0 to 1") { transport.backoff.jitter = $0 }
      /// Finds the servers, with their ports, priorities and weights, by the SRV records of DNS. The records'
      /// name is this value followed by the target's host, such as "_grpc._tcp"; "": the host's own records.
      /// Default: the servers are at the host's addresses and the target's port.
      case "dns_srv": option.labels { transport.services = $0 }
      /// The least time between two look-ups of the target's name.
      case "min_resolve_interval_ms": option.milliseconds(0...86_400_000) { transport.resolving.least = $0 }
      /// The time after which the target's name is looked up again; 0: only when a connection is lost or fails.
      case "resolve_interval_ms": option.milliseconds(0...86_400_000) { transport.resolving.interval = $0 }
      /// How long a connection with calls may be silent before it is pinged; without this option no
      /// connection is pinged. gRPC servers end a connection that pings more often than they allow, which is
      /// every 5 minutes unless they are set otherwise.
      case "keepalive_time_ms":
        option.milliseconds(1000...86_400_000) { transport.keepaliveTime = $0 }
      /// How long a connection may be silent after it was pinged, before its calls end with UNAVAILABLE.
      case "keepalive_timeout_ms":
        option.milliseconds(1...86_400_000) { transport.keepaliveTimeout = $0 }
      /// Whether connections without calls are pinged, too.
      case "keepalive_without_calls": option.bool { transport.keepaliveWithoutCalls = $0 }
      /// How long a callback of a call may keep its thread before interceptors with on_connection are told of it, to within
      /// 10 ms; 0: they are not told.
      case "slow_callback_ms": option.milliseconds(0...86_400_000) { defaults.slowCallback = $0 }
      /// How long a connection with calls is silent before interceptors with on_connection are told of it, in
      /// a channel without keepalive; 0: they are not told.
      case "silence_event_ms": option.milliseconds(0...86_400_000) { transport.silence = $0 }
      /// The window of a stream: how many of its bytes may wait unread (RFC 9113 section 6.9.2).
      case "initial_stream_window_bytes":
        option.bytes(65535...2_147_483_647) { transport.initialStreamWindow = $0 }
      /// The window of a connection: how many bytes of all its streams together may be on their way. It is
      /// 65535 while only bidi streams of small messages are open and the round trip is short.
      case "initial_connection_window_bytes":
        option.bytes(65535...2_147_483_647) { transport.initialConnectionWindow = $0 }
      /// The size up to which the windows of streams grow on a long path, where the product of bandwidth and
      /// delay needs it. The window of a connection becomes twice as large. PINGs measure that product while
      /// messages are taken. 0: the windows keep their sizes.
      case "max_window_bytes": option.bytes(0...2_147_483_647) { transport.mostWindow = $0 }
      /// Whether each call keeps a trace; {"events": n} keeps the latest n events, 1 to 65536, and true keeps
      /// 256. Default: false.
      case "trace": option.trace { defaults.traceEvents = $0 }
      /// The order of interceptors with equal priority.
      case "tie_order": option.choice("fifo lifo") { newestFirst = $0 == 1 }
      default: option.unknown
      }
    }
    guard failure == nil, transport.rpc.needsHTTP2, transport.http == .http1 else { return failure }
    return reader.member("http")?.fail(because: ("gRPC needs HTTP/2" as StaticString).bytes)
  }

  // ---- "socket_options" of a channel: channel.h ----

  private mutating func readSocketOptions(_ reader: JSONReader) -> Failure? {
    var sockets = transport.sockets
    let failure = reader.members { key, option in
      switch key {
      /// Whether TCP sends small writes at once (TCP_NODELAY). Default: true.
      case "tcp_nodelay": option.bool { sockets.setNoDelay($0) }
      /// The size of the kernel's send buffer (SO_SNDBUF), which the kernel doubles. Default: the system adapts it.
      case "send_buffer_bytes": option.bytes(1...2_147_483_647) { sockets.setSendBuffer($0) }
      /// The size of the kernel's receive buffer (SO_RCVBUF), which the kernel doubles. Default: the system adapts it.
      case "receive_buffer_bytes": option.bytes(1...2_147_483_647) { sockets.setReceiveBuffer($0) }
      /// How long sent bytes may wait for TCP's acknowledgement before the connection ends (TCP_USER_TIMEOUT). In a
      /// channel with keepalive "keepalive_timeout_ms" holds instead. Default: the system's.
      case "tcp_user_timeout_ms": option.milliseconds(1...86_400_000) { sockets.setUserTimeout($0) }
      /// How long a connection is silent before the kernel probes whether the peer is there (SO_KEEPALIVE,
      /// TCP_KEEPIDLE), in whole seconds. In a channel of HTTP/1.1 with keepalive its times hold instead. Default: it
      /// is not probed.
      case "tcp_keepalive_ms": option.milliseconds(1000...32_767_000) { sockets.setKeepalive($0) }
      /// The traffic class of the packets (IP_TOS, IPV6_TCLASS): a DSCP times 4. Default: the system's.
      case "traffic_class": option.count(0...255) { sockets.setTrafficClass($0) }
      /// All other options of sockets of IP that have a number as their value: arrays of level, option and value, as
      /// setsockopt takes them. Those of IPv6 are for its sockets only. Default: [].
      case "others": option.triples { sockets.setOther($0, $1, $2) }
      default: option.unknown
      }
    }
    transport.sockets = sockets
    return failure
  }

  // ---- "tls" of a channel: channel.h ----

  private mutating func readTLS(_ reader: JSONReader) -> Failure? {
    if !reader.isObject {
      return reader.bool("true, false or an object") { transport.tls = $0 ? TLSOptions() : nil }
    }
    var tls = TLSOptions()
    let failure = reader.members { key, option in
      switch key {
      /// The certificates to trust, in PEM form. Each is trusted as it is: it may be an intermediate authority, or the
      /// server's own certificate. Default: the roots of the system.
      case "roots_pem": option.string { tls.roots = .pem($0) }
      /// A file with the certificates to trust, in PEM form, as in "roots_pem". Default: the roots of the system.
      case "roots_file": option.string { tls.roots = .file($0) }
      /// The client's own certificate, and the chain to its root, in PEM form.
      case "certificate_chain_pem": option.string { tls.certificateChain = .pem($0) }
      /// A file with the client's own certificate, and the chain to its root.
      case "certificate_chain_file": option.string { tls.certificateChain = .file($0) }
      /// The private key of the client's certificate, in PEM form.
      case "private_key_pem": option.string { tls.privateKey = .pem($0) }
      /// A file with the private key of the client's certificate.
      case "private_key_file": option.string { tls.privateKey = .file($0) }
      /// The name or IP address for which the server's certificate has to be issued, or an array of 1 to 16 of which it
      /// has to have one. The first is also sent as SNI, unless it is an address. Default: the target's host.
      case "server_name": option.serverNames { tls.serverNames = $0 }
      /// Whether the server's certificate is verified.
      case "verify": option.bool { tls.verifiesPeer = $0 }
      /// Lists of revoked certificates (CRLs), in PEM form. There has to be a list of the authority that has issued the
      /// server's certificate; an authority's own certificate is checked if there is a list for it.
      case "crls_pem": option.string { tls.revocations = .pem($0) }
      /// A file with lists of revoked certificates, as in "crls_pem".
      case "crls_file": option.string { tls.revocations = .file($0) }
      /// SHA-256 hashes, in base64, of the public keys (SubjectPublicKeyInfo) of which the server's verified chain has
      /// to have one; with "verify" false the server's own certificate has to. Default: any key.
      case "spki_pins": option.pins { tls.pins = $0 }
      /// The SPIFFE ids of which the server's certificate has to have one, such as "spiffe://example.org/shop". The
      /// host's name is not compared then. Default: the host's name is compared.
      case "spiffe_ids": option.spiffeIDs { tls.spiffeIDs = $0 }
      /// Whether later connections of the channel resume the TLS 1.3 sessions of earlier ones, which makes their
      /// handshakes shorter. With lists of revoked certificates none is resumed, since a resumed one is not looked up.
      case "session_resumption": option.bool { tls.resumes = $0 }
      /// The oldest version of TLS that is allowed.
      case "min_version": option.choice("1.2 1.3") { tls.needsTLS13 = $0 == 1 }
      /// The cipher suites that are allowed, by OpenSSL's names, such as "TLS_AES_128_GCM_SHA256" (TLS 1.3) and
      /// "ECDHE-RSA-AES128-GCM-SHA256" (TLS 1.2). A version of which none is named is not used. Default: those with
      /// forward secrecy and AEAD.
      case "ciphers": option.words { tls.ciphers = $0 }
      /// A regular file to which the keys of each connection are appended, for Wireshark. Everybody who can read it can read
      /// the connections.
      case "key_log_file": option.string { tls.keyLogFile = $0 }
      default: option.unknown
      }
    }
    transport.tls = tls
    return failure ?? refuseBoth(reader, "roots_pem", "roots_file")
      ?? refuseBoth(reader, "certificate_chain_pem", "certificate_chain_file")
      ?? refuseBoth(reader, "private_key_pem", "private_key_file")
      ?? refuseBoth(reader, "crls_pem", "crls_file")
  }
}

/// The failure for an object that gives the same thing in two ways; nil: it does not.
private func refuseBoth(_ reader: JSONReader, _ text: StaticString, _ file: StaticString) -> Failure? {
  guard reader.member(text) != nil, let second = reader.member(file) else { return nil }
  return second.fail(
    because: ("expected either this or \"" as StaticString).bytes, text.bytes,
    ("\", got both" as StaticString).bytes)
}

// ---- penstock_call_options_new: call.h ----

public func read(_ reader: JSONReader, into options: CallOptions) -> Failure? {
  reader.members { key, option in
    switch key {
    /// The time from the call's creation to its deadline; null counts as absent. Default: the channel's.
    case "deadline_ms": option.deadline { options.setDeadline($0) }
    /// The request's metadata: {"name": "value" or ["v1", "v2"]}. Default: {}.
    case "metadata": read(option, into: options.metadata)
    /// Header fields, as in "metadata", that are sent only over TLS: without TLS the call ends with
    /// UNAUTHENTICATED.
    case "credentials": option.credentials { options.credentials = $0 }
    /// How safe it is to make the call a second time. Connect calls a unary method without side effects by
    /// HTTP GET. Over HTTP/1.1 a request that is safe to repeat is sent again if its connection ends without a
    /// byte of an answer.
    case "idempotency":
      option.choice("unknown idempotent no_side_effects") {
        options.idempotency = [.unknown, .idempotent, .noSideEffects][$0]
      }
    /// Whether the call waits, instead of failing, while the channel can't connect. Default: the channel's.
    case "wait_for_ready": option.bool { options.waitsForReady = $0 }
    /// The authority of the request. Default: the channel's.
    case "authority": option.authority { options.authority = $0 }
    /// The name of the messages' encoding in the content-type, such as "json". Default: the name of the codec, or the
    /// channel's.
    case "content_subtype":
      option.encoding {
        options.labels = RequestLabels(authority: nil, contentType: $0, userAgent: nil)
      }
    /// The compression of sent messages, as the channel's option says. Default: the channel's.
    case "compression":
      option.compression { options.compression = $0 }
    /// The size from which messages are compressed, as the channel's option says. Default: the channel's.
    case "compression_min_bytes":
      option.bytes { options.compressionUse = .from(bytes: Int32(clamping: $0)) }
    /// The size limit of one received message, after decompression. Default: the channel's.
    case "max_receive_message_bytes": option.bytes { options.maxReceiveBytes = $0 }
    /// The size limit of one sent message. Default: the channel's.
    case "max_send_message_bytes": option.bytes { options.maxSendBytes = $0 }
    /// The size of the send buffer, in which sent messages wait until the transport takes them. A message
    /// counts as 256 bytes more than its size; one message always has room. Default: 262144, but in a client
    /// stream 655360 as long as fewer than 16 messages wait.
    case "send_buffer_bytes": option.bytes { options.sendBufferBytes = $0 }
    /// Whether the call keeps a trace; the values are those of the channel's option "trace". Default: the
    /// channel's.
    case "trace": option.trace { options.traceEvents = $0 }
    /// Whether functions that wait for the call return E_INTERRUPTED after a signal handler has run. They may
    /// also return it without a signal, up to a few times a second.
    case "interruptible": option.bool { options.isInterruptible = $0 }
    default: option.unknown
    }
  }
}

extension CallOptions {
  public func setDeadline(_ time: UInt64?) {
    deadline = time
    hasDeadline = time != nil
  }
}
