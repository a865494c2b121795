use super::*;

fn parsed(text: &str) -> CheckSpec {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn every_kind_is_read_with_its_default_name() {
    for (text, name, target) in [
        ("dns:example.org", "example.org", "example.org"),
        ("dns:example.org.@10.0.0.10", "example.org", "example.org.@10.0.0.10:53"),
        ("dns:a.b@[fd00::a]:5353", "a.b", "a.b@[fd00::a]:5353"),
        ("dns:a.b@[fd00::a]", "a.b", "a.b@[fd00::a]:53"),
        ("tcp:db-1:5432", "db-1", "db-1:5432"),
        ("tcp:10.0.0.7:65535", "10.0.0.7", "10.0.0.7:65535"),
        ("tls:[fd00::1]:443", "fd00--1", "[fd00::1]:443"),
        ("tls:[::ffff:10.0.0.1]:443", "10.0.0.1", "10.0.0.1:443"),
        ("http://example.org", "example.org", "http://example.org:80/"),
        ("https://example.org:8443/a/b?token=x@y", "example.org", "https://example.org:8443/a/b"),
        ("https://example.org?x=1", "example.org", "https://example.org:443/"),
        ("https://[fd00::1]/%20,a@b", "fd00--1", "https://[fd00::1]:443/%20,a@b"),
        ("icmp:gateway", "gateway", "gateway"),
        ("icmp:[fd00::1]", "fd00--1", "[fd00::1]"),
        ("udp:reflector_1.example:862", "reflector_1.example", "reflector_1.example:862"),
    ] {
        let spec = parsed(text);
        assert_eq!((&*spec.name, spec.target.to_string().as_str()), (name, target), "{text}");
        assert_eq!(parsed(&format!("A-1._z={text}")), CheckSpec { name: "A-1._z".into(), ..spec }, "{text}");
    }
}

#[test]
fn query_is_asked_for_and_not_a_name() {
    let spec = parsed("https://a/b?c=tcp:d:1");
    let CheckTarget::Http { is_secure, host, path } = &spec.target else { panic!("{spec:?}") };
    assert_eq!((*is_secure, host.port, &**path, &*spec.name), (true, 443, "/b?c=tcp:d:1", "a"));
    assert_eq!(spec.to_string(), "a=https://a:443/b");
    assert_eq!(&*parsed("n=https://a/?b=c").name, "n");
    let CheckTarget::Http { path, .. } = parsed("http://a?b=/c").target else { panic!() };
    assert_eq!(&*path, "/?b=/c");
}

#[test]
fn bad_checks_are_named_with_what_is_accepted() {
    let long = "a.".repeat(30);
    let deep = format!("http://a/{}", "b".repeat(CHECK_PATH_BYTES_MAX));
    for (text, reason, accepted) in [
        ("", "no KIND", "icmp:HOST or udp:HOST:PORT"),
        ("example.org", "no KIND", "[NAME=]dns:NAME"),
        ("none", "no KIND", "[NAME=]dns:NAME"),
        ("sctp:a:1", "KIND is not known", "tcp:HOST:PORT, tls:HOST:PORT"),
        ("HTTP://a/", "KIND is not known", "http://HOST[:PORT]/PATH"),
        ("service:a:1", "KIND is not known", ""),
        ("tcp:a", "no port", "tcp:HOST:PORT"),
        ("tcp:a:", "port is not a number", "tcp:HOST:PORT"),
        ("tcp:a:0", "port is not a number", "tcp:HOST:PORT"),
        ("tcp:a:+1", "port is not a number", "tcp:HOST:PORT"),
        ("tls:a:65536", "from 1 to 65535", "tls:HOST:PORT"),
        ("tls:a:1:2", "from 1 to 65535", "tls:HOST:PORT"),
        ("tcp::80", "it is empty", "tcp:HOST:PORT"),
        ("tcp:fd00::1", "in brackets", "such as [fd00::1]"),
        ("icmp:fd00::1", "in brackets", "such as [fd00::1]"),
        ("icmp:[fd00::1", "no IPv6 address", "icmp:HOST"),
        ("icmp:[10.0.0.1]", "no IPv6 address", "icmp:HOST"),
        ("tcp:[fd00::1]x:1", "no port", "tcp:HOST:PORT"),
        ("icmp:fe80::1%eth0", "cannot be a name", "icmp:HOST"),
        ("icmp:[fe80::1]", "link-local", "icmp:HOST"),
        ("icmp:0.0.0.0", "unspecified", "icmp:HOST"),
        ("icmp:10.0.0.256", "neither an address nor a name", "icmp:HOST"),
        ("icmp:a b", "cannot be a name", "icmp:HOST"),
        ("icmp:a..b", "label is empty", "icmp:HOST"),
        ("dns:10.0.0.1", "no records", "dns:NAME[@SERVER[:PORT]]"),
        ("dns:a@b", "SERVER is a name", "SERVER is an address"),
        ("dns:a@", "it is empty", "SERVER is an address"),
        ("dns:a@10.0.0.1:0", "port", "SERVER is an address"),
        ("http:a", "not a URL", "http://HOST[:PORT]/PATH"),
        ("https:/a", "not a URL", "https://HOST[:PORT]/PATH"),
        ("http:///a", "it is empty", "http://HOST"),
        ("http://a:x/", "port", "http://HOST"),
        ("http://a/b c", "escaped", "http://HOST"),
        ("http://a/%2", "escaped", "http://HOST"),
        ("http://a/é", "escaped", "http://HOST"),
        (&deep, "too long", "256 bytes"),
        ("a b=tcp:h:1", "NAME cannot be a label", "1 to 48 characters"),
        ("=tcp:h:1", "NAME cannot be a label", "1 to 48 characters"),
        ("*=tcp:h:1", "NAME cannot be a label", "1 to 48 characters"),
        (&format!("{}=tcp:h:1", "n".repeat(49)), "NAME cannot be a label", "1 to 48 characters"),
        (&format!("icmp:{long}"), "too long to be its NAME", "NAME= before it"),
    ] {
        let error = text.parse::<CheckSpec>().expect_err(text).to_string();
        assert!(error.contains(reason) && error.contains(accepted), "{text}: {error}");
        assert!(error.starts_with("bad check \"") && error.contains("; accepted: "), "{text}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn secrets_are_never_shown() {
    for (text, shown) in [
        ("https://user:secret@a/", "https:…"),
        ("n=https://secret@a/b", "n=https:…"),
        ("https:/user:se?cret@a/", "https:…"),
        ("https://user:se#cret@a/", "https:…"),
        ("https://a/b?token=secret#x", "https://a/b…"),
        ("https://a:x/b?token=secret", "https://a:x/b…"),
        ("https://a/b#secret", "https://a/b…"),
        ("https://a:x/?mail=me@secret", "https:…"),
        ("tcp:user:secret@a:1", "tcp:…"),
        ("dns://user:secret@a/", "dns:…"),
        ("HTTPS://user:secret@a/", "…"),
        ("user:secret@a", "…"),
        ("secret@a", "…"),
    ] {
        let error = text.parse::<CheckSpec>().expect_err(text).to_string();
        assert!(error.starts_with(&format!("bad check {shown:?}: ")) && !error.contains("secret"), "{text}: {error}");
    }
    let long = format!("sctp:{}", "é".repeat(200));
    let error = long.parse::<CheckSpec>().unwrap_err().to_string();
    assert!(error.contains(&format!("\"sctp:{}…\"", "é".repeat(75))), "{error}");
}
