//! Values that can be bound and read: the types both engines have in common.
use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};

use super::{Error, Result};

/// A parameter of a statement, or a column of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Text(String),
    Int(i64),
    Bool(bool),
    Real(f64),
    Bytes(Vec<u8>),
}

macro_rules! into_value { ($($type:ty => |$x:ident| $value:expr;)*) => { $(
    impl From<$type> for Value { fn from($x: $type) -> Self { $value } }
)* } }
into_value! {
    String => |x| Value::Text(x);
    &str => |x| Value::Text(x.to_owned());
    &String => |x| Value::Text(x.clone());
    i64 => |x| Value::Int(x);
    i32 => |x| Value::Int(i64::from(x));
    u32 => |x| Value::Int(i64::from(x));
    u16 => |x| Value::Int(i64::from(x));
    bool => |x| Value::Bool(x);
    f64 => |x| Value::Real(x);
    Vec<u8> => |x| Value::Bytes(x);
    &[u8] => |x| Value::Bytes(x.to_vec());
    // Not by `to_string`, which goes through the formatter.
    &serde_json::Value => |x| Value::Text(serde_json::to_string(x).unwrap_or_default());
}
impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(option: Option<T>) -> Self {
        option.map_or(Self::Null, Into::into)
    }
}
/// A list of strings, stored as JSON text.
impl From<&Vec<String>> for Value {
    fn from(words: &Vec<String>) -> Self {
        Self::Text(serde_json::to_string(words).unwrap_or_default())
    }
}

/// A structured value, stored as JSON text.
#[derive(Debug, Clone)]
pub struct InJson<T>(pub T);

impl<T: Serialize> From<&InJson<T>> for Value {
    fn from(InJson(content): &InJson<T>) -> Self {
        Self::Text(serde_json::to_string(content).unwrap_or_default())
    }
}
impl<T: DeserializeOwned> FromValue for InJson<T> {
    fn from_value(value: Value) -> Option<Self> {
        serde_json::from_str(&String::from_value(value)?).ok().map(Self)
    }
}

/// A type that can be read from a column.
pub trait FromValue: Sized {
    fn from_value(value: Value) -> Option<Self>;
}

macro_rules! from_value { ($($type:ty => $($pattern:pat => $value:expr),+;)*) => { $(
    impl FromValue for $type {
        fn from_value(value: Value) -> Option<Self> { match value { $($pattern => Some($value),)+ _ => None } }
    }
)* } }
from_value! {
    String => Value::Text(text) => text;
    i64 => Value::Int(number) => number;
    u32 => Value::Int(number) => u32::try_from(number).ok()?;
    u16 => Value::Int(number) => u16::try_from(number).ok()?;
    // SQLite stores booleans as 0 and 1.
    bool => Value::Bool(truth) => truth, Value::Int(number) => number != 0;
    Vec<u8> => Value::Bytes(bytes) => bytes;
    serde_json::Value => Value::Text(text) => serde_json::from_str(&text).ok()?;
    Vec<String> => Value::Text(text) => serde_json::from_str(&text).ok()?;
}
impl FromValue for f64 {
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Real(number) => Some(number),
            // SQLite returns a whole number as an integer.
            #[expect(clippy::cast_precision_loss, reason = "a real column never holds more than 53 bits")]
            Value::Int(number) => Some(number as Self),
            _ => None,
        }
    }
}
impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

/// A row of a result. Columns are read by name, each at most once.
#[derive(Debug)]
pub struct Row {
    names: Arc<[String]>,
    values: Vec<Value>,
    /// Where the search for the next column begins: most columns are read in order.
    next: usize,
}

impl Row {
    pub(super) fn new(names: Arc<[String]>, values: Vec<Value>) -> Self {
        Self { names, values, next: 0 }
    }

    /// Takes a column out of the row.
    pub fn get<T: FromValue>(&mut self, name: &str) -> Result<T> {
        let mut places = (self.next..self.names.len()).chain(0..self.next);
        let found = places.find(|place| self.names[*place] == name);
        let place = found.ok_or_else(|| Error::Decode(format!("there is no column {name}")))?;
        self.next = place + 1;
        T::from_value(std::mem::replace(&mut self.values[place], Value::Null))
            .ok_or_else(|| Error::Decode(format!("column {name} is null or has another type")))
    }
}

/// A type that can be read from a row; see [`row!`](crate::row).
pub trait FromRow: Sized {
    fn from_row(row: Row) -> Result<Self>;
}

/// Reads the first column alone: `db.one::<(i64,)>("SELECT CAST(COUNT(*) AS BIGINT) …")`.
impl<T: FromValue> FromRow for (T,) {
    fn from_row(row: Row) -> Result<Self> {
        let first = row.values.into_iter().next().ok_or_else(|| Error::Decode("the row is empty".into()))?;
        let value =
            T::from_value(first).ok_or_else(|| Error::Decode("the column is null or has another type".into()));
        value.map(|value| (value,))
    }
}

/// Lets a struct be read from columns of the same names: `row!(Incident { id, title });`.
#[macro_export]
macro_rules! row { ($type:ident { $($field:ident),* $(,)? }) => {
    impl $crate::FromRow for $type {
        fn from_row(mut row: $crate::Row) -> $crate::Result<Self> {
            Ok($type { $($field: row.get(stringify!($field))?),* })
        }
    }
} }

/// The parameters of a statement: `params![id, &name, None::<String>]`.
#[macro_export]
macro_rules! params { ($($value:expr),* $(,)?) => { vec![$($crate::Value::from($value)),*] } }
