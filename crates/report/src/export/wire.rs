//! Protocol Buffers' wire format, as far as `profile.proto` needs it: varints and length-delimited fields, written and nothing else.
//! (<https://protobuf.dev/programming-guides/encoding/>)

/// A protobuf message under construction.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

const VARINT: u64 = 0;
const DELIMITED: u64 = 2;

impl Message {
    /// An integer or bool; 0 is what is read where nothing is written, so it is left out.
    pub fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.varint(field << 3 | VARINT);
            self.varint(value);
        }
    }

    /// Adds a packed list of integers.
    pub fn numbers(&mut self, field: u64, values: &[u64]) {
        let mut packed = Message::default();
        for &value in values {
            packed.varint(value);
        }
        self.bytes(field, &packed.0);
    }

    /// Adds an embedded message.
    pub fn message(&mut self, field: u64, inner: &Message) {
        self.bytes(field, &inner.0);
    }

    /// Adds a string.
    pub fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// The bytes written so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Empties it for the next one.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | DELIMITED);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_the_specification() {
        let mut inner = Message::default();
        inner.number(1, 150);
        assert_eq!(inner.as_bytes(), [0x08, 0x96, 0x01]);
        let mut outer = Message::default();
        outer.text(2, "testing");
        assert_eq!(outer.as_bytes(), [0x12, 7, b't', b'e', b's', b't', b'i', b'n', b'g']);
        outer.clear();
        outer.message(3, &inner);
        assert_eq!(outer.as_bytes(), [0x1a, 3, 0x08, 0x96, 0x01]);
        outer.clear();
        outer.numbers(4, &[3, 270, 86942]);
        assert_eq!(outer.as_bytes(), [0x22, 6, 3, 0x8e, 2, 0x9e, 0xa7, 5]);
        outer.clear();
        outer.number(5, 0);
        outer.number(6, u64::MAX);
        assert_eq!(outer.as_bytes().len(), 11);
    }
}
