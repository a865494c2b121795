//! The wire format of protocol buffers, as far as Kubernetes uses it: the fields of a message that
//! is completely in memory.
//!
//! This is our own code instead of a code generator and its runtime. Only six small messages are
//! read. Most of their fields are skipped, and everything that is kept borrows from the body.
//! (<https://protobuf.dev/programming-guides/encoding/>)
//!
//! The trap: a field may come twice, and the last one counts. Fields may come in any order.

/// Not a protobuf message, or one that is cut off.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a protobuf message")]
pub struct Broken;

impl From<Broken> for String {
    fn from(broken: Broken) -> Self {
        broken.to_string()
    }
}

/// The content that a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue<'a> {
    /// A number or a boolean.
    Number(u64),
    /// A string, bytes or a message.
    Bytes(&'a [u8]),
    /// A fixed-width value. We read no field of this kind.
    Fixed,
}

impl<'a> FieldValue<'a> {
    /// Returns the bytes of the field.
    ///
    /// # Errors
    /// The field does not contain bytes.
    pub const fn bytes(self) -> Result<&'a [u8], Broken> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) | Self::Fixed => Err(Broken),
        }
    }

    /// Returns the text of the field.
    ///
    /// # Errors
    /// The field does not contain bytes, or they are not UTF-8.
    pub fn text(self) -> Result<&'a str, Broken> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Broken)
    }

    /// Returns the number in the field.
    ///
    /// # Errors
    /// The field does not contain a number.
    pub const fn number(self) -> Result<u64, Broken> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) | Self::Fixed => Err(Broken),
        }
    }
}

/// Iterates over the fields of a message, in order.
#[derive(Clone, Debug)]
pub struct MessageFields<'a>(&'a [u8]);

impl<'a> MessageFields<'a> {
    /// Makes the iterator over this message.
    pub const fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn read(&mut self) -> Option<(u64, FieldValue<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => FieldValue::Number(self.varint()?),
            1 => self.take(8).map(|_| FieldValue::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                FieldValue::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| FieldValue::Fixed)?,
            // Groups do not exist in proto3.
            _ => return None,
        };
        Some((tag >> 3, value))
    }

    fn varint(&mut self) -> Option<u64> {
        let (value, length) = varint(self.0)?;
        self.0 = &self.0[length..];
        Some(value)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'a> Iterator for MessageFields<'a> {
    /// A field's number and value. After an error the iterator ends.
    type Item = Result<(u64, FieldValue<'a>), Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(Broken))
    }
}

/// Returns the varint at the front and its length in bytes. None if it is cut off, or
/// longer than 64 bits.
pub fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        if index == 9 && *byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_width_are_distinguished() {
        let message = [0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1d, 1, 2, 3, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8, 0x2a, 0];
        let fields: Result<Vec<_>, _> = MessageFields::new(&message).collect();
        let expected = [
            (1, FieldValue::Number(150)),
            (2, FieldValue::Bytes(b"hi")),
            (3, FieldValue::Fixed),
            (4, FieldValue::Fixed),
            (5, FieldValue::Bytes(b"")),
        ];
        assert_eq!(fields.unwrap(), expected);
    }

    #[test]
    fn a_cut_message_is_an_error_at_every_byte_but_between_fields() {
        let message = [0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1d, 1, 2, 3, 4];
        for length in 0..=message.len() {
            let whole = MessageFields::new(&message[..length]).all(|field| field.is_ok());
            assert_eq!(whole, [0, 3, 7, 12].contains(&length), "{length}");
        }
    }

    #[test]
    fn nonsense_ends_with_an_error_and_never_runs_on() {
        for message in
            [&[0x0b][..], &[0x0f], &[0xff; 20], &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]]
        {
            let fields: Vec<_> = MessageFields::new(message).collect();
            assert_eq!(fields, [Err(Broken)], "{message:?}");
        }
    }

    #[test]
    fn a_varint_has_at_most_64_bits() {
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 7]), Some((u64::MAX, 10)));
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]), None);
        assert_eq!(varint(&[0x80]), None);
    }

    #[test]
    fn a_value_of_another_kind_is_refused() {
        assert_eq!((FieldValue::Number(1).text(), FieldValue::Bytes(b"a").number()), (Err(Broken), Err(Broken)));
        assert_eq!((FieldValue::Bytes(&[0xff]).text(), FieldValue::Fixed.bytes()), (Err(Broken), Err(Broken)));
    }
}
