import PenstockTestSupport
import Glibc
import PenstockWire

@testable import PenstockLink

/// Certificates that the openssl command line makes once for a test run, in a directory of their own.
public struct Certificates: Sendable {
  public static let shared = Certificates()

  public let directory: String

  private init() {
    var template = Array("/tmp/penstock-certificates-XXXXXX".utf8CString)
    let made = template.withUnsafeMutableBufferPointer {
      mkdtemp($0.baseAddress!).map { String(cString: $0) }
    }
    guard let made else { fatalError("mkdtemp") }
    directory = made
    let script = """
      set -e
      cd '\(made)'
      key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }
      ca() { key "$1"; openssl req -x509 -new -key "$1.key" -out "$1.pem" -days 30 -subj "/CN=$1"; }
      leaf() { # name, CA, SAN, days, CN
        key "$1"
        openssl req -new -key "$1.key" -out "$1.csr" -subj "/CN=${5:-$1}"
        printf '%sbasicConstraints=CA:FALSE\\n' "${3:+subjectAltName=$3\n}" > "$1.ext"
        openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -CAcreateserial -out "$1.pem" \
          -days "$4" -extfile "$1.ext"
      }
      ca root
      ca otherroot
      leaf server root 'DNS:localhost,DNS:*.test.example,IP:127.0.0.1,IP:fe80::1' 30
      leaf partial root 'DNS:f*.test.example' 30
      leaf underscore root 'DNS:a_b.test.example' 30
      leaf cn root '' 30 localhost
      leaf cnbesideip root 'IP:127.0.0.1' 30 localhost
      leaf expired root 'DNS:localhost' -1
      leaf client root 'DNS:client' 30
      leaf stranger otherroot 'DNS:stranger' 30
      key selfsigned
      openssl req -x509 -new -key selfsigned.key -out selfsigned.pem -days 30 -subj /CN=localhost \
        -addext 'subjectAltName=DNS:localhost'
      """
    let status = system("( \(script) ) > '\(made)/log' 2>&1")
    guard status == 0 else { fatalError("openssl failed: see \(made)/log") }
    atexit { _ = system("rm -rf '\(Certificates.shared.directory)'") }
  }

  public func path(_ name: String) -> ByteBuffer { bytes("\(directory)/\(name)") }
  public func file(_ name: String) -> TLSOptions.Source { .file(path(name)) }

  public func server(_ name: String = "server", change: (inout TLSOptions) -> Void = { _ in }) -> TLSOptions {
    var options = TLSOptions()
    options.certificateChain = file("\(name).pem")
    options.privateKey = file("\(name).key")
    change(&options)
    return options
  }

  public func client(change: (inout TLSOptions) -> Void = { _ in }) -> TLSOptions {
    var options = TLSOptions()
    options.roots = file("root.pem")
    change(&options)
    return options
  }
}
