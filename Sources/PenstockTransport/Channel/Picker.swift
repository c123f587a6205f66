import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLink
import PenstockHTTP

/// The user's function that chooses the endpoint of each attempt. The object is also the handle that the
/// function gets. While the function runs, the handle gives access to the call and to the endpoints that the
/// function may choose. At other times it gives access to nothing. Driving thread only.
public final class Picker: HopHandle {
  /// The function. Its arguments are this object and the user data. The result is the index of an endpoint,
  /// or the number of an `Answer`.
  public typealias Function = @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Int32

  public enum Answer {
    case endpoint(Int)
    case wait
    case fail(Status)
  }

  private let function: Function
  private let userData: UserData
  /// The call whose endpoint is being chosen; nil: the function does not run.
  public private(set) var call: Call?
  /// All endpoints of the channel, and the indices of those that the function may choose.
  private var endpoints: [Subchannel] = []
  private var choices: [Int] = []
  private var failure: Status?

  public init(_ function: @escaping Function, _ userData: UserData) {
    self.function = function
    self.userData = userData
    super.init()
  }

  public override var form: Form { .pick }

  public var count: Int { choices.count }

  /// The endpoint at position `index` among those that the function may choose; nil: there is none.
  public func endpoint(_ index: Int) -> Endpoint? {
    index >= 0 && index < choices.count ? endpoints[choices[index]].endpoint : nil
  }

  /// Sets the status for the call. The call ends with it if the function then returns the answer that fails
  /// the call.
  public func fail(_ status: Status) -> Outcome {
    guard call != nil else { return .state }
    failure = status
    return .ok
  }

  /// Runs the function. `given`: the indices in `all` of the endpoints that the function may choose.
  func pick(among given: [Int], of all: [Subchannel], for call: Call) -> Answer {
    self.call = call
    endpoints = all
    choices = given
    call.watch.begin(call.id, .pick)
    let began = call.callbackBegins
    let answer = function(OpaquePointer(Unmanaged.passUnretained(self).toOpaque()), userData.pointer)
    call.watch.end()
    call.callbackEnded(began, .pick)
    self.call = nil
    endpoints = []
    choices = []
    let failure = failure.take()
    if answer >= 0, Int(answer) < given.count { return .endpoint(Int(answer)) }
    if answer == -1 { return .wait }
    if answer == -2 { return .fail(failure ?? Status(.unavailable, "the picker has failed the call")) }
    let words = ByteBuffer().say("the picker has returned ").say(Int(answer)).say(" for ").say(given.count)
    return .fail(Status(.internal, words: words.say(" endpoints")))
  }
}
