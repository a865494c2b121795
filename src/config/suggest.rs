//! "Did you mean": the known word that is nearest to a mistyped one.

/// Longest word that is compared. The time grows with the product of both lengths.
const BYTES_MAX: usize = 40;
/// Shortest beginning of a known word that stands for it.
const BEGINNING_BYTES_MIN: usize = 3;

/// Returns the known word that differs from `word` by the fewest letters, at most by a third of
/// them, or else one that begins with it. `None` if there is no such word.
pub fn nearest<'a>(word: &str, known: &(impl Iterator<Item = &'a str> + Clone)) -> Option<&'a str> {
    if word.len() > BYTES_MAX {
        return None;
    }
    let letters_max = word.chars().count() / 3;
    let with_distance = known.clone().map(|known| (strsim::osa_distance(word, known), known));
    let near = with_distance.filter(|(distance, _)| *distance <= letters_max).min_by_key(|(distance, _)| *distance);
    let begun = || known.clone().find(|known| word.len() >= BEGINNING_BYTES_MIN && known.starts_with(word));
    near.map(|(_, known)| known).or_else(begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_word_is_found_and_another_word_is_not() {
        let found = |word: &str| nearest(word, &["run", "ping", "version", "count", "payload-bytes"].into_iter());
        for (word, meant) in [
            ("pign", Some("ping")),
            ("pin", Some("ping")),
            ("verison", Some("version")),
            ("Version", Some("version")),
            ("cuont", Some("count")),
            ("payload", Some("payload-bytes")),
            ("fly", None),
            ("", None),
            ("pa", None),
            ("wings", None),
        ] {
            assert_eq!(found(word), meant, "{word}");
        }
        assert_eq!(found(&"version".repeat(1_000)), None);
    }
}
