import PenstockCall
import PenstockChannel
import PenstockLoop
import PenstockWire

// The retry policies of the channel's service config, as attempts ask for them.

extension ChannelCore {
  /// Takes over the retry policies of the present service config.
  func takeRetries() {
    let service = destination.service
    guard destination.retries, service.methods.haveRetries else {
      hasRetries = false
      throttle = nil
      return
    }
    hasRetries = true
    guard let settings = service.retryThrottle else {
      throttle = nil
      return
    }
    if throttle == nil { throttle = RetryThrottle(settings) } else { throttle?.become(settings) }
  }

  /// Notes that an attempt of `request` has ended with `status`. `isAnswered`: the response has begun before its status,
  /// so that the request can't be sent again. An attempt whose request the server has certainly not processed is not
  /// counted: the request is sent again without the policy.
  func noteEnd(_ request: Request, _ status: Status, isAnswered: Bool) {
    if status.code == .ok {
      throttle?.succeeded()
      return
    }
    guard status.canRepeat == .no, status.mayRetry else { return }
    let isListed = policy(of: request)?.codes.contains(status.code) == true
    if isListed || status.pushback == .never { throttle?.failed() }
    if isListed, !isAnswered, closedBecause == nil { status.canRepeat = .byPolicy }
  }

  func waitToRetry(_ call: Call, after status: Status, _ count: inout RetryCount) -> UInt64? {
    guard hasRetries, closedBecause == nil, let policy = policy(of: call.request),
      policy.codes.contains(status.code)
    else { return nil }
    // The server has not processed the request, but the policy has to decide, because it has been repeated often enough.
    if status.canRepeat != .byPolicy { throttle?.failed() }
    var further = count
    let random = runtime.platform.random()
    guard let wait = policy.wait(after: status.code, status.pushback, &further, random: random) else {
      return nil
    }
    guard throttle?.allowsRetries != false else {
      counts.throttled &+= 1
      noteRetry(of: call, after: status, in: nil)
      return nil
    }
    count = further
    counts.retries &+= 1
    noteRetry(of: call, after: status, in: wait)
    return wait
  }

  private func policy(of request: Request) -> MethodRetry? {
    destination.service.methods.find(request.pathView)?.retry
  }
}
