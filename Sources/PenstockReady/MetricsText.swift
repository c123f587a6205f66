import PenstockCall
import PenstockWire

// The texts of the metrics: JSON, and Prometheus' exposition format 0.0.4.

extension Metrics {
  /// The metrics as JSON, followed by a NUL; nil: no memory.
  public func json() -> ByteBuffer? {
    let json = JSONText()
    read { methods, peers in
      json.object {
        json.key("methods")
        json.array { for method in methods { write(method, json) } }
        json.key("peers")
        json.array { for peer in peers { write(peer, json) } }
      }
    }
    return json.isComplete && json.buffer.append(byte: 0) ? json.buffer : nil
  }

  private func write(_ peer: Peer, _ json: JSONText) {
    let other = ("other" as StaticString).bytes
    json.object {
      json.member("target", peer.target?.view ?? other)
      json.member("peer", peer.address?.view ?? other)
      json.key("codes")
      json.array {
        for (code, count) in peer.codes {
          json.object {
            json.member("code", UInt64(code.rawValue))
            json.member("name", code.name)
            json.member("count", count)
          }
        }
      }
      json.key("connections")
      json.object {
        json.member("opened", peer.opened)
        json.member("lost", peer.lost)
        json.member("failed", peer.failed)
      }
    }
  }

  private func write(_ method: Method, _ json: JSONText) {
    json.object {
      json.member("method", method.path?.view ?? ("other" as StaticString).bytes)
      json.member("target", method.target?.view ?? ("other" as StaticString).bytes)
      json.member("kind", method.kind.name)
      json.member("started", method.started)
      json.member("in_flight", method.started - method.ended)
      json.key("sent")
      json.object {
        json.member("messages", method.sentMessages)
        json.member("bytes", method.sentBytes)
      }
      json.key("received")
      json.object {
        json.member("messages", method.receivedMessages)
        json.member("bytes", method.receivedBytes)
      }
      json.key("codes")
      json.array { for ended in method.codes { write(ended, json) } }
    }
  }

  private func write(_ ended: Ended, _ json: JSONText) {
    json.object {
      json.member("code", UInt64(ended.code.rawValue))
      json.member("name", ended.code.name)
      json.member("count", ended.count)
      json.key("seconds")
      json.seconds(ended.nanoseconds)
      json.key("buckets")
      json.array {
        var count: UInt64 = 0
        for (index, inside) in ended.buckets.enumerated() {
          count += inside
          json.object {
            json.key("le_ms")
            if index < options.buckets.count {
              json.number(options.buckets[index] / 1_000_000)
            } else {
              json.null()
            }
            json.member("count", count)
          }
        }
      }
    }
  }

  /// The metrics in Prometheus' format, followed by a NUL; nil: no memory.
  public func prometheusText() -> ByteBuffer? {
    let text = PrometheusText()
    read {
      write($0, text)
      write($1, text)
    }
    return text.isComplete && text.buffer.append(byte: 0) ? text.buffer : nil
  }

  private func write(_ methods: [Method], _ text: PrometheusText) {
    text.family("grpc_client_started_total", "counter", "Calls started.")
    for method in methods { text.sample("grpc_client_started_total", method, nil, nil, method.started) }
    text.family("grpc_client_in_flight", "gauge", "Calls that have not ended.")
    for method in methods {
      text.sample("grpc_client_in_flight", method, nil, nil, method.started - method.ended)
    }
    text.family("grpc_client_handled_total", "counter", "Calls ended, by status code.")
    for method in methods {
      for ended in method.codes {
        text.sample("grpc_client_handled_total", method, ended.code, nil, ended.count)
      }
    }
    text.family("grpc_client_msg_sent_total", "counter", "Messages sent by calls that have ended.")
    for method in methods { text.sample("grpc_client_msg_sent_total", method, nil, nil, method.sentMessages) }
    text.family("grpc_client_msg_received_total", "counter", "Messages received by calls that have ended.")
    for method in methods {
      text.sample("grpc_client_msg_received_total", method, nil, nil, method.receivedMessages)
    }
    text.family("grpc_client_handling_seconds", "histogram", "How long calls took.")
    for method in methods { for ended in method.codes { write(ended, of: method, text) } }
  }

  private func write(_ peers: [Peer], _ text: PrometheusText) {
    text.family("grpc_client_peer_handled_total", "counter", "Calls ended, by server and status code.")
    for peer in peers {
      for (code, count) in peer.codes { text.sample("grpc_client_peer_handled_total", peer, code, count) }
    }
    text.family("grpc_client_connections_opened_total", "counter", "Connections that became ready.")
    for peer in peers { text.sample("grpc_client_connections_opened_total", peer, nil, peer.opened) }
    text.family("grpc_client_connections_lost_total", "counter", "Connections that have ended.")
    for peer in peers { text.sample("grpc_client_connections_lost_total", peer, nil, peer.lost) }
    text.family("grpc_client_connect_failures_total", "counter", "Attempts to connect that have failed.")
    for peer in peers { text.sample("grpc_client_connect_failures_total", peer, nil, peer.failed) }
  }

  private func write(_ ended: Ended, of method: Method, _ text: PrometheusText) {
    var count: UInt64 = 0
    for (index, inside) in ended.buckets.enumerated() {
      count += inside
      let bound = ByteBuffer()
      let isWritten =
        index < options.buckets.count
        ? appendSeconds(options.buckets[index], to: bound) : bound.append("+Inf")
      if !isWritten { text.fail() }
      text.sample("grpc_client_handling_seconds_bucket", method, ended.code, bound.view, count)
      withExtendedLifetime(bound) {}
    }
    text.sample("grpc_client_handling_seconds_sum", method, ended.code, nil, nil, seconds: ended.nanoseconds)
    text.sample("grpc_client_handling_seconds_count", method, ended.code, nil, ended.count)
  }
}
