//! The API server's side of protobuf: writes what `src/discovery/kubernetes/api.rs` reads, with all
//! the further fields of the real server.
#![allow(dead_code, reason = "each test uses its own part")]

/// Encodes a field that is bytes, a string or a message.
pub fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(u64::from(number) << 3 | 2, &mut out);
    varint(content.len() as u64, &mut out);
    out.extend_from_slice(content);
    out
}

/// Encodes a field that is a number.
pub fn number(field: u8, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(u64::from(field) << 3, &mut out);
    varint(value, &mut out);
    out
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap());
}

/// Encodes a message in the envelope of the API server.
pub fn envelope(group_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, group_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, message), field(3, b""), field(4, b"")].concat()
}

/// An endpoint. A field that is `None` is absent.
#[derive(Clone, Debug, Default)]
pub struct Endpoint {
    pub addresses: Vec<String>,
    pub node: Option<String>,
    pub pod: Option<String>,
    pub zone: Option<String>,
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
}

impl Endpoint {
    /// An endpoint that is serving.
    pub fn new(node: &str, address: &str) -> Self {
        Self {
            addresses: vec![address.into()],
            node: Some(node.into()),
            pod: Some(format!("canary-{node}")),
            zone: Some("z1".into()),
            ready: Some(true),
            serving: Some(true),
            terminating: Some(false),
        }
    }

    /// An endpoint that is terminating.
    pub fn terminating(node: &str, address: &str) -> Self {
        Self { ready: Some(false), terminating: Some(true), ..Self::new(node, address) }
    }

    fn message(&self) -> Vec<u8> {
        let text = |n: u8, text: &Option<String>| text.as_ref().map_or_else(Vec::new, |t| field(n, t.as_bytes()));
        let mut conditions = Vec::new();
        for (n, condition) in [(1, self.ready), (2, self.serving), (3, self.terminating)] {
            conditions.extend(condition.map_or_else(Vec::new, |value| number(n, value.into())));
        }
        let target = [field(1, b"Pod"), field(2, b"monitoring"), text(3, &self.pod), field(4, b"b6f1-uid")].concat();
        let mut out: Vec<u8> = self.addresses.iter().flat_map(|address| field(1, address.as_bytes())).collect();
        out.extend(field(2, &conditions));
        if self.pod.is_some() {
            out.extend(field(4, &target));
        }
        out.extend(text(6, &self.node));
        out.extend(text(7, &self.zone));
        out
    }
}

/// An EndpointSlice with its endpoints.
#[derive(Clone, Debug)]
pub struct Slice {
    pub name: String,
    pub version: String,
    /// The creation time, in seconds since the epoch.
    pub created: u64,
    pub family: String,
    pub endpoints: Vec<Endpoint>,
    pub ports: Vec<(String, Option<u64>)>,
}

/// A slice with these endpoints, given as node and address, all serving.
pub fn slice(name: &str, version: &str, family: &str, endpoints: &[(&str, &str)]) -> Slice {
    Slice {
        name: name.into(),
        version: version.into(),
        created: 1_735_689_600,
        family: family.into(),
        endpoints: endpoints.iter().map(|(node, address)| Endpoint::new(node, address)).collect(),
        ports: vec![("http".into(), Some(9_877))],
    }
}

impl Slice {
    fn object_meta(&self) -> Vec<u8> {
        let label = [field(1, b"kubernetes.io/service-name"), field(2, b"kube-canary")].concat();
        let managed = [field(1, b"kube-controller-manager"), field(7, &field(1, b"{\"f:endpoints\":{}}"))].concat();
        [
            field(1, self.name.as_bytes()),
            field(2, b"kube-canary-"),
            field(3, b"monitoring"),
            field(5, b"30b3ba1c-dd81-4ab2-844d-7f304cc38690"),
            if self.version.is_empty() { Vec::new() } else { field(6, self.version.as_bytes()) },
            number(7, 3),
            field(8, &[number(1, self.created), number(2, 0)].concat()),
            field(11, &label),
            field(17, &managed),
        ]
        .concat()
    }

    /// The slice as an item of a list.
    pub fn message(&self) -> Vec<u8> {
        let mut out = field(1, &self.object_meta());
        for endpoint in &self.endpoints {
            out.extend(field(2, &endpoint.message()));
        }
        for (name, port) in &self.ports {
            let port = port.map_or_else(Vec::new, |port| number(3, port));
            out.extend(field(3, &[field(1, name.as_bytes()), field(2, b"TCP"), port].concat()));
        }
        out.extend(field(4, self.family.as_bytes()));
        out
    }

    /// The slice's metadata alone, as an item of a list.
    pub fn metadata(&self) -> Vec<u8> {
        field(1, &self.object_meta())
    }

    /// The answer to a GET of the slice.
    pub fn body(&self) -> Vec<u8> {
        envelope("discovery.k8s.io/v1", "EndpointSlice", &self.message())
    }

    fn metadata_body(&self) -> Vec<u8> {
        envelope("meta.k8s.io/v1", "PartialObjectMetadata", &self.metadata())
    }
}

fn list(version: &str, items: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let metadata = [field(1, b""), field(2, version.as_bytes()), field(3, b"")].concat();
    let items: Vec<u8> = items.flat_map(|item| field(2, &item)).collect();
    [field(1, &metadata), items].concat()
}

/// The answer to a list of slices.
pub fn slice_list(version: &str, slices: &[Slice]) -> Vec<u8> {
    envelope("discovery.k8s.io/v1", "EndpointSliceList", &list(version, slices.iter().map(Slice::message)))
}

/// The same with this many bytes of unknown fields in it.
pub fn padded_slice_list(version: &str, slices: &[Slice], padding: usize) -> Vec<u8> {
    const PIECE: usize = 1 << 20;
    let mut message = list(version, slices.iter().map(Slice::message));
    (0..padding.div_ceil(PIECE)).for_each(|_| message.extend(field(9, &vec![0; PIECE])));
    envelope("discovery.k8s.io/v1", "EndpointSliceList", &message)
}

/// The answer to a list of their metadata.
pub fn metadata_list(version: &str, slices: &[Slice]) -> Vec<u8> {
    envelope("meta.k8s.io/v1", "PartialObjectMetadataList", &list(version, slices.iter().map(Slice::metadata)))
}

/// The status that the server sends instead of an object.
pub fn status(code: u16, reason: &str, name: &str) -> Vec<u8> {
    let message = [
        field(2, b"Failure"),
        field(3, b"no"),
        field(4, reason.as_bytes()),
        field(5, &field(1, name.as_bytes())),
        number(6, code.into()),
    ]
    .concat();
    envelope("v1", "Status", &message)
}

/// A frame of a watch.
pub fn event(kind: &str, body: &[u8]) -> Vec<u8> {
    let event = [field(1, kind.as_bytes()), field(2, &field(1, body))].concat();
    [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
}

/// The frame for a slice that was added, changed or deleted.
pub fn change(kind: &str, slice: &Slice) -> Vec<u8> {
    event(kind, &slice.metadata_body())
}

/// A bookmark's frame.
pub fn bookmark(version: &str) -> Vec<u8> {
    change("BOOKMARK", &Slice { name: String::new(), ..slice("", version, "IPv4", &[]) })
}

/// The frame of the error that ends a watch.
pub fn error(code: u16) -> Vec<u8> {
    event("ERROR", &status(code, "Expired", ""))
}
