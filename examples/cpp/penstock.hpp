// A thin face of libpenstock for C++17: handles that release themselves, errors as exceptions, protobuf messages, and
// interceptors as classes. An example to copy and to change, not a part of the library's ABI.
#ifndef PENSTOCK_HPP
#define PENSTOCK_HPP

#include <penstock/penstock.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace penstock {

template <auto Release> struct Releases {
  template <typename T> void operator()(T *handle) const { Release(handle); }
};
template <typename T, auto Release> using Handle = std::unique_ptr<T, Releases<Release>>;

// A function of the library failed.
class Error : public std::runtime_error {
public:
  Error(penstock_result result, const std::string &what) : std::runtime_error(what), result(result) {}
  const penstock_result result;
};

// Throws an Error if `result` is one.
inline void check(penstock_result result) {
  if (result != PENSTOCK_OK) throw Error(result, penstock_result_name(result));
}

// Calls `function` with the address of an error, and throws an Error if it fails.
template <typename Function> void checked(Function function) {
  penstock_error *error = nullptr;
  const penstock_result result = function(&error);
  Handle<penstock_error, penstock_error_release> owned(error);
  if (result != PENSTOCK_OK) throw Error(result, error ? penstock_error_message(error) : penstock_result_name(result));
}

// A call ended with another status than OK.
class StatusError : public std::runtime_error {
public:
  StatusError(int32_t code, const std::string &message)
      : std::runtime_error(std::string(penstock_status_code_name(code)) + ": " + message), code(code) {}
  const int32_t code;
};

// How a call ended.
class Reply {
public:
  explicit Reply(penstock_reply *reply) : handle(reply) {}
  int32_t code() const { return penstock_reply_code(handle.get()); }
  std::string_view message() const {
    size_t length;
    const char *text = penstock_status_message(penstock_reply_status(handle.get()), &length);
    return {text, length};
  }
  std::string_view bytes() const { // lives as long as the reply
    size_t length;
    const auto *data = static_cast<const char *>(penstock_reply_bytes(handle.get(), &length));
    return data ? std::string_view(data, length) : std::string_view();
  }
  std::string_view stats_json() const { return penstock_reply_stats_json(handle.get()); }
  const Reply &throw_unless_ok() const {
    if (code() != PENSTOCK_STATUS_OK) throw StatusError(code(), std::string(message()));
    return *this;
  }

private:
  Handle<penstock_reply, penstock_reply_release> handle;
};

// A call with streams, in blocking style. Its end cancels what is left of it.
class Stream {
public:
  explicit Stream(penstock_call *call) : handle(call) {}
  void send(std::string_view message) { check(penstock_call_send(handle.get(), message.data(), message.size())); }
  void half_close() { check(penstock_call_half_close(handle.get())); }
  // Waits for the next message; false: there is none any more.
  bool receive(std::string &into) {
    penstock_message *message;
    const penstock_result result = penstock_call_receive(handle.get(), &message);
    if (result == PENSTOCK_E_END) return false;
    check(result);
    Handle<penstock_message, penstock_message_release> owned(message);
    size_t length;
    const auto *data = static_cast<const char *>(penstock_message_bytes(message, &length));
    into.assign(data, length);
    return true;
  }
  template <typename Message> void send_proto(const Message &message) { send(message.SerializeAsString()); }
  template <typename Message> bool receive_proto(Message &message) {
    std::string bytes;
    if (!receive(bytes)) return false;
    if (!message.ParseFromString(bytes)) throw StatusError(PENSTOCK_STATUS_INTERNAL, "the message does not parse");
    return true;
  }
  Reply wait() {
    penstock_reply *reply;
    check(penstock_call_wait(handle.get(), &reply));
    return Reply(reply);
  }

private:
  Handle<penstock_call, penstock_call_release> handle;
};

// An interceptor: override what you need. One object serves all calls of a registration. An exception ends the call.
class Interceptor {
public:
  virtual ~Interceptor() = default;
  virtual int32_t on_start(penstock_hop *) { return PENSTOCK_NEXT; }
  virtual int32_t on_send(penstock_hop *) { return PENSTOCK_NEXT; }
  virtual int32_t on_half_close(penstock_hop *) { return PENSTOCK_NEXT; }
  virtual int32_t on_headers(penstock_hop *) { return PENSTOCK_NEXT; }
  virtual int32_t on_receive(penstock_hop *) { return PENSTOCK_NEXT; }
  virtual int32_t on_status(penstock_hop *) { return PENSTOCK_NEXT; }

  // A table that owns `self`.
  static penstock_interceptor table(std::unique_ptr<Interceptor> self, const char *name) {
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    table.name = name;
    table.user_data = self.release();
    table.finalizer = [](void *self) { delete static_cast<Interceptor *>(self); };
    table.on_start = calls<&Interceptor::on_start>;
    table.on_send = calls<&Interceptor::on_send>;
    table.on_half_close = calls<&Interceptor::on_half_close>;
    table.on_headers = calls<&Interceptor::on_headers>;
    table.on_receive = calls<&Interceptor::on_receive>;
    table.on_status = calls<&Interceptor::on_status>;
    return table;
  }

private:
  // No exception may pass a C function.
  template <int32_t (Interceptor::*Callback)(penstock_hop *)> static int32_t calls(penstock_hop *hop, void *self) {
    try {
      return (static_cast<Interceptor *>(self)->*Callback)(hop);
    } catch (const std::exception &exception) {
      penstock_hop_end(hop, PENSTOCK_STATUS_INTERNAL, exception.what());
    } catch (...) {
      penstock_hop_end(hop, PENSTOCK_STATUS_INTERNAL, "an interceptor threw");
    }
    return PENSTOCK_NEXT;
  }
};

class CallOptions {
public:
  explicit CallOptions(const char *json) {
    penstock_call_options *made = nullptr;
    checked([&](penstock_error **error) { return penstock_call_options_new(json, &made, error); });
    handle.reset(made);
  }
  const penstock_call_options *get() const { return handle.get(); }

private:
  Handle<penstock_call_options, penstock_call_options_release> handle;
};

class Channel {
public:
  explicit Channel(const std::string &target, const char *options = nullptr) {
    penstock_channel *made = nullptr;
    checked([&](penstock_error **error) { return penstock_channel_new(target.c_str(), options, &made, error); });
    handle.reset(made);
  }

  penstock_interceptor_id add(std::unique_ptr<Interceptor> interceptor, int32_t priority, const char *name) {
    penstock_interceptor table = Interceptor::table(std::move(interceptor), name);
    penstock_interceptor_id id;
    checked([&](penstock_error **error) {
      return penstock_channel_add_interceptor(handle.get(), &table, priority, &id, error);
    });
    return id;
  }

  Reply unary(const char *method, std::string_view request, const CallOptions *options = nullptr) {
    penstock_reply *reply = nullptr;
    checked([&](penstock_error **error) {
      return penstock_channel_unary(handle.get(), method, request.data(), request.size(),
                                    options ? options->get() : nullptr, &reply, error);
    });
    return Reply(reply);
  }

  // A unary call with protobuf messages. Throws a StatusError unless the call ends with OK.
  template <typename Response, typename Request>
  Response call(const char *method, const Request &request, const CallOptions *options = nullptr) {
    Reply reply = unary(method, request.SerializeAsString(), options);
    Response response;
    std::string_view bytes = reply.throw_unless_ok().bytes();
    if (!response.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
      throw StatusError(PENSTOCK_STATUS_INTERNAL, "the response does not parse");
    return response;
  }

  // A call with streams; `kind` is PENSTOCK_KIND_...
  Stream stream(const char *method, int32_t kind, const CallOptions *options = nullptr) {
    penstock_call *call = nullptr;
    checked([&](penstock_error **error) {
      return penstock_channel_call(handle.get(), method, kind, options ? options->get() : nullptr, nullptr, &call,
                                   error);
    });
    return Stream(call);
  }

private:
  Handle<penstock_channel, penstock_channel_release> handle;
};

} // namespace penstock

#endif
