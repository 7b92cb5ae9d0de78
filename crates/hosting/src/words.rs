//! Enumerations that are one word in the database and in JSON.

/// An enumeration whose words are the same in a column and in an answer.
macro_rules! words {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum $name { $($(#[$doc])* #[serde(rename = $word)] $variant,)+ }

        impl $name {
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl From<$name> for db::Value {
            fn from(value: $name) -> Self {
                value.name().into()
            }
        }

        impl db::FromValue for $name {
            fn from_value(value: db::Value) -> Option<Self> {
                match String::from_value(value)?.as_str() { $($word => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}
pub(crate) use words;
