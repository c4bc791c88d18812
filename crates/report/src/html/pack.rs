//! The page's data as one block of text: a JSON head and typed columns, deflated, in base64. `docs/report.md` describes the layout.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use numapilot_insight::cube::NONE;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

/// Columns begin at multiples of this, as the browser's typed arrays want it.
const ALIGNMENT: usize = 8;

/// Columns while they are built: their bytes, and type, offset and length of each by name.
#[derive(Default)]
pub struct Columns {
    bytes: Vec<u8>,
    directory: Map<String, Value>,
}

impl Columns {
    /// Adds whole numbers in the narrowest type that holds them; [`NONE`] becomes that type's greatest value.
    pub fn whole(&mut self, name: &str, values: &[u32]) {
        let greatest = values.iter().copied().filter(|&value| value != NONE).max().unwrap_or(0);
        let length = values.len();
        if greatest < u32::from(u8::MAX) {
            self.column(name, "u8", length, values.iter().map(|&value| [value as u8]));
        } else if greatest < u32::from(u16::MAX) {
            self.column(name, "u16", length, values.iter().map(|&value| (value as u16).to_le_bytes()));
        } else {
            self.column(name, "u32", length, values.iter().map(|&value| value.to_le_bytes()));
        }
    }

    /// Adds numbers: as whole ones where all are, else as 64-bit floats. NaN stands for "not known".
    pub fn numbers(&mut self, name: &str, values: &[f64]) {
        let is_whole = |value: &f64| value.fract() == 0.0 && *value >= 0.0 && *value < f64::from(NONE);
        if values.iter().all(is_whole) {
            let whole: Vec<u32> = values.iter().map(|&value| value as u32).collect();
            self.whole(name, &whole);
        } else {
            self.column(name, "f64", values.len(), values.iter().map(|value| value.to_le_bytes()));
        }
    }

    fn column<const N: usize>(&mut self, name: &str, kind: &str, length: usize, values: impl Iterator<Item = [u8; N]>) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        self.directory.insert(name.to_owned(), json!([kind, self.bytes.len(), length]));
        values.for_each(|value| self.bytes.extend_from_slice(&value));
    }

    /// Packs `head`, to which it adds the directory of columns, and all columns into one text.
    pub fn pack(self, mut head: Value) -> String {
        head["columns"] = Value::Object(self.directory);
        let mut json = head.to_string().into_bytes();
        // The columns must begin aligned, and JSON may end in white space.
        json.resize((json.len() + 4).next_multiple_of(ALIGNMENT) - 4, b' ');
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(LEVEL));
        let length = (json.len() as u32).to_le_bytes();
        let written = [&length[..], &json, &self.bytes].iter().try_for_each(|part| encoder.write_all(part));
        let packed = written.and_then(|()| encoder.finish()).expect("writing to memory does not fail");
        base64(&packed)
    }
}

/// Level of deflate: above it, time rises faster than size falls.
const LEVEL: u32 = 5;

/// Base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0u32, |group, &byte| group << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(group >> (18 - 6 * place)) as usize & 63];
            text.push(if place > chunk.len() { b'=' } else { digit });
        }
    }
    text.into_iter().map(char::from).collect()
}

/// Estimates as `[value, low, high]`, floats with seven significant digits, which makes the page smaller to load.
pub fn compact(value: Value) -> Value {
    match value {
        Value::Object(fields) if fields.len() == 3 && fields.contains_key("low") && fields.contains_key("high") => {
            ["value", "low", "high"].into_iter().map(|name| rounded(fields[name].as_f64().unwrap_or(0.0))).collect()
        }
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, compact(value))).collect(),
        Value::Array(values) => values.into_iter().map(compact).collect(),
        Value::Number(number) if number.is_f64() => rounded(number.as_f64().unwrap_or(0.0)),
        other => other,
    }
}

fn rounded(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return json!(value as i64);
    }
    json!(format!("{value:.6e}").parse().unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "/+++");
    }

    #[test]
    fn estimates_become_triples_and_floats_short() {
        let value =
            json!({"share": {"value": 0.123_456_789, "low": 0.0, "high": 1.0}, "n": 3, "x": 1e300, "none": null});
        let expected = json!({"share": [0.123_456_8, 0, 1], "n": 3, "x": 1e300, "none": null});
        assert_eq!(compact(value), expected);
    }

    #[test]
    fn columns_take_the_narrowest_type_and_start_aligned() {
        let mut columns = Columns::default();
        columns.whole("small", &[1, NONE, 254]);
        columns.whole("middle", &[255, NONE]);
        columns.whole("large", &[70_000, NONE]);
        columns.numbers("whole", &[1.0, 300.0]);
        columns.numbers("floats", &[0.5, f64::NAN]);
        let text = columns.pack(json!({"format": "x"}));
        let packed = decode(&text);
        let mut bytes = Vec::new();
        flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut bytes).expect("deflate");
        let length = u32::from_le_bytes(bytes[..4].try_into().expect("four")) as usize;
        let head: Value = serde_json::from_slice(&bytes[4..4 + length]).expect("JSON");
        let body = &bytes[4 + length..];
        assert_eq!((4 + length) % ALIGNMENT, 0);
        let column = |name: &str| {
            let entry = &head["columns"][name];
            (entry[0].as_str().expect("type"), entry[1].as_u64().expect("offset") as usize)
        };
        assert_eq!(column("small").0, "u8");
        assert_eq!(&body[column("small").1..][..3], [1, 255, 254]);
        assert_eq!(column("middle"), ("u16", 8));
        assert_eq!(&body[8..12], [255, 0, 255, 255]);
        assert_eq!(column("large").0, "u32");
        assert_eq!(column("whole").0, "u16");
        assert_eq!(column("floats").0, "f64");
        assert!(["small", "middle", "large", "whole", "floats"].iter().all(|name| column(name).1 % ALIGNMENT == 0));
    }

    fn decode(text: &str) -> Vec<u8> {
        let value = |digit: u8| match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        let digits: Vec<u8> = text.bytes().filter(|&digit| digit != b'=').map(value).collect();
        let groups = digits.chunks(4).flat_map(|chunk| {
            let group =
                chunk.iter().fold(0u32, |group, &digit| group << 6 | u32::from(digit)) << (6 * (4 - chunk.len()));
            group.to_be_bytes()[1..chunk.len()].to_vec()
        });
        groups.collect()
    }
}
