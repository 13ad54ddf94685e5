//! What services read and write, apart from the path; packets through it are in `crate::tests`.

use linerate_appliance::config::parse;
use linerate_wire::tcp::{self, Tcp, flag};
use proptest::prelude::*;

use super::classify::look;
use super::host::{Host, Look};
use super::{KINDS, MOST, Plan, ServiceBits, stanza};
use crate::policy::{self, Policy, PolicyConfig};

use linerate_tables::flow::Direction::{Forward, Reverse};

/// A ClientHello that asks for `name`, after other extensions, in records of at most `record`.
pub(crate) fn client_hello(name: &str, record: usize) -> Vec<u8> {
    let extension = |kind: u16, body: &[u8]| {
        let len = (body.len() as u16).to_be_bytes();
        [&kind.to_be_bytes()[..], &len, body].concat()
    };
    let len = name.len() as u16;
    let mut server_name = (len + 3).to_be_bytes().to_vec();
    server_name.push(0);
    server_name.extend(len.to_be_bytes());
    server_name.extend(name.as_bytes());
    let mut extensions = [extension(0x0a0a, &[]), extension(43, &[2, 3, 4])].concat();
    if !name.is_empty() {
        extensions.extend(extension(0, &server_name));
    }
    // Keys as large as those of post-quantum exchanges.
    extensions.extend(extension(51, &[7; 1230]));
    let mut body = vec![3, 3];
    body.extend([9; 32]);
    body.push(32);
    body.extend([8; 32]);
    body.extend([0, 4, 0x13, 1, 0x13, 2, 1, 0]);
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    let mut message = vec![1, 0];
    message.extend((body.len() as u16).to_be_bytes());
    message.extend(body);
    let records = message.chunks(record).map(|part| {
        let len = (part.len() as u16).to_be_bytes();
        [&[22, 3, 1][..], &len, part].concat()
    });
    records.collect::<Vec<_>>().concat()
}

fn found(name: &str) -> Look {
    Look::Found(Host::of(name.as_bytes()).unwrap())
}

/// Until all is there that it takes, more is asked for; what follows changes nothing.
#[track_caller]
fn reads(bytes: &[u8], expected: Look) {
    assert_eq!(look(bytes), expected);
    let enough = (0..=bytes.len()).find(|&len| look(&bytes[..len]) != Look::More);
    let enough = enough.unwrap();
    assert!((enough..bytes.len()).all(|len| look(&bytes[..len]) == expected));
}

#[test]
fn rfc6066_3_the_server_name_is_found_wherever_records_end() {
    for record in [1, 2, 3, 7, 100, 1 << 14] {
        let hello = client_hello("Www.Example.org", record);
        reads(&hello, found("www.example.org"));
        reads(&client_hello("", record), Look::Nameless);
    }
}

#[test]
fn what_is_no_client_hello_is_soon_known_to_be_none() {
    let hello = client_hello("a.example", 1 << 14);
    for (at, byte) in [
        (0, 23),   // application data
        (1, 2),    // SSL 2
        (3, 0xff), // a record longer than there are
        (5, 2),    // a ServerHello
        (43, 33),  // a session longer than there are
    ] {
        let mut other = hello.clone();
        other[at] = byte;
        assert_eq!(look(&other), Look::Other, "{at}");
        assert_eq!(look(&other[..=at.max(4)]), Look::Other, "{at}");
    }
    // Lengths that do not fit each other.
    let mut short = hello.clone();
    short[8] = 60;
    short[7] = 0;
    assert_eq!(look(&short), Look::Other);
}

#[test]
fn rfc9112_3_2_the_host_of_a_request_is_that_of_its_target_or_its_field() {
    for (request, expected) in [
        ("GET / HTTP/1.1\r\nHost: a.example\r\n", found("a.example")),
        ("GET / HTTP/1.1\nhost:A.Example:8080\n", found("a.example")),
        (
            "POST /x?u=http://b.example/ HTTP/1.1\r\nAccept: */*\r\nHOST:\t[2001:db8::1]:80 \r\n",
            found("[2001:db8::1]"),
        ),
        (
            "GET http://u:p@c.example:81/a HTTP/1.1\r\nHost: other.example\r\n",
            found("c.example"),
        ),
        ("CONNECT d.example:443 HTTP/1.1\r\n", found("d.example")),
        ("GET / HTTP/1.0\r\n\r\n", Look::Nameless),
        ("GET / HTTP/1.1\r\nHost: a b\r\n", Look::Nameless),
        ("GET / HTTP/1.1\r\nHost:\r\n", Look::Nameless),
        ("GET / SPDY\r\n", Look::Other),
        ("SSH-2.0-x\r\n", Look::Other),
        ("PRI * HTTP/2.0\r\n", Look::Other),
    ] {
        reads(request.as_bytes(), expected);
    }
}

#[test]
fn a_name_is_below_those_behind_its_dots() {
    let host = Host::of(b"a.B.example.").unwrap();
    let above: Vec<_> = host.and_above().collect();
    assert_eq!(above, [&b"a.b.example"[..], b"b.example", b"example"]);
    for wrong in [&b""[..], b".", b"a b", b"a\n", b"\xc3\xa4", &[b'a'; 254]] {
        assert_eq!(Host::of(wrong), None);
    }
}

/// A SYN whose option for the largest segment is behind so many bytes of no operation.
fn syn(before: usize, size: u16, data: &[u8]) -> Vec<u8> {
    let mut options = vec![1; before];
    options.extend([2, 4]);
    options.extend(size.to_be_bytes());
    options.resize(options.len().next_multiple_of(4), 0);
    let mut segment = tcp::header(1, 2, 3, 4, flag::SYN).to_vec();
    segment[12] = ((20 + options.len()) as u8 / 4) << 4;
    segment.extend(options);
    segment.extend(data);
    segment
}

proptest! {
    /// RFC 1624: the checksum that is kept is the one that is computed anew, wherever it changes.
    #[test]
    fn a_clamped_syn_has_the_checksum_of_a_new_one(
        before in 0_usize..9, size: u16, limit: u16, pseudo: u16, data: Vec<u8>,
    ) {
        let mut segment = syn(before, size, &data);
        Tcp::new_checked(&mut segment[..]).unwrap().fill_checksum(pseudo);
        let mut clamped = segment.clone();
        let had = super::mss::clamp(&mut clamped, limit, false);
        let mut expected = syn(before, size.min(limit), &data);
        Tcp::new_checked(&mut expected[..]).unwrap().fill_checksum(pseudo);
        prop_assert_eq!(had, (size > limit).then_some(size));
        // Zero has two forms in one's complement.
        prop_assert!(Tcp::new_checked(&clamped[..]).unwrap().verify(pseudo));
        clamped[16..18].fill(0);
        expected[16..18].fill(0);
        prop_assert_eq!(clamped, expected);
        // One that is only begun is not about these bytes.
        let mut begun = segment.clone();
        super::mss::clamp(&mut begun, limit, true);
        prop_assert_eq!(&begun[16..18], &segment[16..18]);
    }

    #[test]
    fn options_that_lie_about_their_length_are_left(
        options in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut segment = tcp::header(1, 2, 3, 4, flag::SYN).to_vec();
        let room = options.len() / 4 * 4;
        segment[12] = ((20 + room) as u8 / 4) << 4;
        segment.extend(&options[..room]);
        let _ = super::mss::clamp(&mut segment, 500, false);
        prop_assert_eq!(segment.len(), 20 + room);
    }
}

const ZONES: &str = "[[zone]]\nname = \"in\"\ninterfaces = [\"p0\"]\n\
                     [[zone]]\nname = \"out\"\ninterfaces = [\"p1\"]\n";

/// Services and policies of a text behind the zones, which take six lines, and its errors.
fn read(text: &str) -> (Vec<super::Spec>, PolicyConfig, Vec<String>) {
    let parsed = parse(&format!("{ZONES}{text}"), |file| {
        let policy = policy::stanza::read(file, &["p0", "p1"], std::path::Path::new("."));
        let services = stanza::read(file);
        stanza::check(file, &services, &policy);
        file.end();
        (services, policy)
    });
    let (services, policy) = parsed.value;
    let errors = parsed.errors.iter().map(|error| error.to_string());
    (services, policy, errors.collect())
}

fn plan(text: &str) -> (Plan, std::sync::Arc<Policy>) {
    let (services, policy, errors) = read(text);
    assert_eq!(errors, Vec::<String>::new());
    let policy = Policy::build(&policy, &["p0", "p1"], None).unwrap();
    (Plan::new(&services, &policy), policy)
}

#[test]
fn a_rule_gives_its_own_services_or_those_of_its_list() {
    let (plan, policy) = plan(
        "[[policy]]\nfrom = \"in\"\nto = \"out\"\ndefault = \"permit\"\n\
         apply = [\"statistics\", \"classify\"]\nrules = [\n\
         { action = \"permit\", service = \"tcp/1\" },\n\
         { action = \"permit\", service = \"tcp/2\", apply = [\"police:guest\", \"mss\"] },\n\
         { action = \"permit\", service = \"tcp/3\", apply = [] },\n]\n\
         [[services.police]]\nname = \"guest\"\nrate = \"1Mbit\"\nburst = \"10kB\"\n",
    );
    // In the order of the kinds.
    let names: Vec<_> = plan.specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["police:guest", "mss", "classify", "statistics"]);
    let list = policy.lists().len() - 1;
    let of = |rule: usize| {
        let apply = policy.lists()[list].rules[rule].apply;
        plan.bits(list as u16, apply)
    };
    // A classifier looks at what the side says that has begun.
    let usual = ServiceBits([0b1100, 0b1000]);
    assert_eq!([of(0), plan.bits(list as u16, 0)], [usual; 2]);
    assert_eq!([of(1), of(2)], [ServiceBits([0b11; 2]), ServiceBits::NONE]);
    assert_eq!(plan.names(usual), ["classify", "statistics"]);
    // The classifier reads what comes from the side that has begun, and nothing else does.
    let reads = |name: &str| plan.reads_from(policy.zones().named(name).unwrap());
    assert!(reads("in") && !reads("out") && !reads("self"));
    // Packets within a zone, and where nothing is said, have none.
    assert!((0..list).all(|list| plan.bits(list as u16, 0).is_none()));
    let without = usual.without(Forward, 0b0100);
    assert_eq!([without.of(Forward), without.of(Reverse)], [0b1000; 2]);
}

#[test]
fn what_is_wrong_with_services_is_said_by_line() {
    let list = |apply: &str| {
        format!("[[policy]]\nfrom = \"in\"\nto = \"out\"\ndefault = \"permit\"\napply = {apply}\n")
    };
    for (text, expected) in [
        (
            list("[\"statistic\"]"),
            "7: policy in > out: apply: there is no service `statistic`",
        ),
        (
            list("[\"police:guest\"]"),
            "7: policy in > out: apply: there is no service `police:guest`",
        ),
        (list("\"mss\""), "11: policy.apply: this is"),
        (
            "[services]\nmms = 1\n".into(),
            "8: services.mms: there is no such key",
        ),
        (
            "[services.mss]\nsize = 12\n".into(),
            "8: services.mss.size: ",
        ),
        (
            "[services.capture]\nx = 1\n".into(),
            "8: services.capture.x: there is no such key",
        ),
        (
            "[services.classify]\ndeny_hosts = [\"a b\"]\n".into(),
            "8: services.classify.deny_hosts: `a b` is no name",
        ),
        (
            "[[services.match]]\nname = \"m\"\npatterns = [\"\"]\n".into(),
            "an empty pattern is in everything",
        ),
        (
            "[[services.match]]\nname = \"m\"\npatterns = []\n".into(),
            "it looks for nothing",
        ),
        (
            "[[services.match]]\nname = \"m\"\npatterns = [\"hex:0g\"]\n".into(),
            "`hex:0g` is no row of bytes",
        ),
        (
            "[[services.police]]\nname = \"a b\"\nrate = \"1Mbit\"\nburst = \"1kB\"\n".into(),
            "`a b` is no name of a service",
        ),
        ("[[services.police]]\nname = \"a\"\n".into(), "rate"),
    ] {
        let (_, _, errors) = read(&text);
        assert!(
            errors.iter().any(|error| error.contains(expected)),
            "{text}: {errors:#?}"
        );
    }
    let denied = "[[policy]]\nfrom = \"in\"\nto = \"out\"\n\
                  rules = [{ action = \"deny\", apply = [\"mss\"] }]\n";
    assert!(read(denied).2[0].contains("flows that it refuses have no packets"));
    // One more than there are bits.
    let names: Vec<String> = (0..=MOST).map(|at| format!("\"police:p{at}\"")).collect();
    let stanzas = (0..=MOST).map(|at| {
        format!("[[services.police]]\nname = \"p{at}\"\nrate = \"1Mbit\"\nburst = \"9kB\"\n")
    });
    let text = list(&format!("[{}]", names.join(", "))) + &stanzas.collect::<String>();
    assert!(read(&text).2[0].contains("rules apply 16 services"));
}

#[test]
fn each_kind_has_a_name_of_its_own_and_runs_in_some_direction() {
    for (at, kind) in KINDS.iter().enumerate() {
        assert!(KINDS[..at].iter().all(|other| other.name != kind.name));
        assert!(kind.directions.contains(&true), "{kind:?}");
    }
}
