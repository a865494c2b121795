use super::super::encode::{self, field, number};
use super::*;

const LIMIT: usize = 1_000;

/// Returns every piece of a body that arrives in parts of `size` bytes. The second value is the
/// error, or what was missing at the end.
fn pieces(body: &[u8], size: usize, limit: usize) -> (Vec<String>, Result<(), Unreadable>) {
    let mut items = ListItems::new(ObjectKind::SLICES, limit);
    let mut found = Vec::new();
    for part in body.chunks(size) {
        items.push(part);
        loop {
            match items.next_piece() {
                Ok(None) => break,
                Ok(Some(ListPiece::Metadata(metadata))) => found.push(format!("metadata of {}", metadata.len())),
                Ok(Some(ListPiece::Item(item))) => found.push(format!("item of {}", item.len())),
                Err(error) => return (found, Err(error)),
            }
        }
    }
    let end = items.finish();
    (found, end)
}

fn three() -> Vec<u8> {
    let slice = |name: &str, n: usize| encode::slice(name, "1", "IPv4", &vec![("n1", "10.0.0.1"); n]);
    encode::slice_list("77", &[slice("a", 0), slice("bb", 3), slice("ccc", 1)])
}

#[test]
fn a_list_comes_out_whole_wherever_the_stream_is_cut() {
    let body = three();
    let whole = pieces(&body, body.len(), LIMIT);
    assert_eq!((whole.0.len(), &whole.1), (4, &Ok(())));
    assert!(whole.0[0].starts_with("metadata"), "{whole:?}");
    for size in 1..body.len() {
        assert_eq!(pieces(&body, size, LIMIT), whole, "{size}");
    }
}

#[test]
fn a_list_that_breaks_off_is_none_wherever_it_does() {
    let body = three();
    // After the list come two empty fields of the envelope, of two bytes each. A list without them
    // is complete.
    let whole = [0, 2, 4].map(|more| body.len() - 4 + more);
    for length in 0..body.len() {
        let (_, end) = pieces(&body[..length], 64, LIMIT);
        assert_eq!(end.is_ok(), whole.contains(&length), "{length} of {}", body.len());
    }
}

#[test]
fn a_body_that_is_not_such_a_list_is_refused() {
    let list = [field(1, &field(2, b"7")), field(2, b"")].concat();
    for body in [
        b"{\"kind\":\"EndpointSliceList\"}".to_vec(),
        encode::envelope("discovery.k8s.io/v1", "EndpointSlice", &list),
        encode::envelope("v1", "Status", &list),
        // The kind is missing, or comes after the list.
        [b"k8s\0".to_vec(), field(2, &list)].concat(),
        // A field that reaches beyond its list.
        encode::envelope("discovery.k8s.io/v1", "EndpointSliceList", &[0x12, 0x7f, 1, 2]),
        encode::envelope("discovery.k8s.io/v1", "EndpointSliceList", &[0x0b]),
        [encode::envelope("discovery.k8s.io/v1", "EndpointSliceList", &list), b"k8s\0".to_vec()].concat(),
        Vec::new(),
    ] {
        assert!(matches!(pieces(&body, 7, LIMIT).1, Err(Unreadable::Malformed(_))), "{body:?}");
    }
    assert_eq!(pieces(&encode::envelope("discovery.k8s.io/v1", "EndpointSliceList", &list), 7, LIMIT).1, Ok(()));
}

#[test]
fn an_item_past_the_limit_is_refused_before_it_has_come() {
    let body = encode::slice_list("77", &[encode::slice("a", "1", "IPv4", &[("n1", "10.0.0.1"); 100])]);
    let mut items = ListItems::new(ObjectKind::SLICES, LIMIT);
    items.push(&body[..200]);
    assert!(matches!(items.next_piece(), Ok(Some(ListPiece::Metadata(_)))));
    assert_eq!(items.next_piece(), Err(Unreadable::TooLarge(LIMIT)));
    assert_eq!(pieces(&body, 64, 100 * LIMIT).1, Ok(()));
    // The list itself may have any length.
    let long = encode::slice_list("77", &vec![encode::slice("a", "1", "IPv4", &[]); 1_000]);
    assert_eq!((pieces(&long, 4_096, LIMIT).0.len(), pieces(&long, 4_096, LIMIT).1), (1_001, Ok(())));
}

#[test]
fn numbers_and_unknown_fields_of_a_list_are_passed_over() {
    let list = [number(9, 300), field(1, &field(2, b"7")), field(7, b"later"), field(2, b"")].concat();
    let body = encode::envelope("discovery.k8s.io/v1", "EndpointSliceList", &list);
    for size in 1..body.len() {
        assert_eq!(pieces(&body, size, LIMIT), (vec!["metadata of 3".into(), "item of 0".into()], Ok(())), "{size}");
    }
}

#[test]
fn events_come_out_whole_wherever_the_stream_is_cut() {
    let stream = [encode::bookmark("1"), encode::error(410), encode::bookmark("2")].concat();
    for size in 1..=stream.len() {
        let mut events = WatchEvents::new(LIMIT);
        let mut found = Vec::new();
        for part in stream.chunks(size) {
            events.push(part);
            while let Some(event) = events.next_event().unwrap() {
                found.push(event.len() + 4);
            }
        }
        assert_eq!(
            found,
            [encode::bookmark("1").len(), encode::error(410).len(), encode::bookmark("2").len()],
            "{size}"
        );
    }
}

#[test]
fn an_event_past_the_limit_is_refused_by_its_length() {
    let mut events = WatchEvents::new(LIMIT);
    events.push(&[0, 0, 3, 0xe8]);
    assert_eq!(events.next_event(), Ok(None));
    let mut events = WatchEvents::new(LIMIT);
    events.push(&[0, 0, 3, 0xe9]);
    assert_eq!(events.next_event(), Err(Unreadable::TooLarge(LIMIT)));
}

#[test]
fn a_large_buffer_is_given_back_after_its_piece() {
    let mut events = WatchEvents::new(1 << 20);
    events.push(&[&[0, 4, 0, 0][..], &vec![0; 1 << 18]].concat());
    assert_eq!(events.next_event().unwrap().unwrap().len(), 1 << 18);
    events.push(&[0, 0, 0, 1, 7]);
    assert_eq!(events.next_event(), Ok(Some(&[7][..])));
    assert!(events.inbox.buffer.capacity() <= limits::EVENT_BUFFER_KEPT_BYTES);
}
