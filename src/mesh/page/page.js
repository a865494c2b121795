// Reads what the agents report, line by line, and shows it in words. link.js and map.js follow it
// in the same script.
//
// Names come from the network. They are written to the document only as text
// nodes, never as markup.
'use strict';

// Milliseconds between two collections; at least ten times the duration of the last one.
const PERIOD = 15e3;
// Milliseconds to wait for the next part of an answer.
const ANSWER_TIME = 60e3;
// Peer lists older than this are mentioned, in seconds (src/limits.rs).
const LIST_AGE = 240;
const MEASURES = [['loss', 'Loss'], ['rtt_p50_seconds', 'RTT p50'], ['rtt_p99_seconds', 'RTT p99']];
const KINDS = {
  mesh: 'Mesh', partition: 'Partition', paths: 'Parallel path', node: 'Node', zone: 'Zone', zone_pair: 'Zone pair',
  domain: 'Domain', link: 'Link', flow: 'Flow', mtu: 'Large packets',
  agent_starved: 'Starved agent', agent_unreachable: 'Unreachable agent',
};
const WAYS = { in: 'inbound', out: 'outbound', both: 'either direction' };

const mesh = {
  // Maps a source's name to { source, layers: { 'pod icmp': Map of a peer's name to its object } }.
  rows: new Map(),
  // Maps a name to { name, zone }.
  nodes: new Map(),
  // Maps a name to 'starved' or 'leaving', as the end of the document lists them.
  standings: new Map(),
  // Maps a name to the reason why its report did not arrive.
  missing: new Map(),
  layers: new Set(), verdicts: [], headline: '', state: '', notCollected: 0, notListed: 0, at: null,
};
const shown = { measure: 'loss', layer: '', verdict: null, link: null };
const turns = { timer: 0, due: 0, running: false, paused: false, failures: 0, drawn: 0 };
const sorting = { by: 0, down: false };

const $ = (id) => document.getElementById(id);
const set = (element, name, value) => element.setAttribute(name, value);
function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// ---- figures ----

const collator = new Intl.Collator('en', { numeric: true });
const inOrder = (a, b) => (typeof a === 'number' && typeof b === 'number' ? a - b : collator.compare(a ?? '', b ?? ''));
const number = (value) => (value == null ? '-' : value.toLocaleString('en'));
const digits = (value) => (value < 9.95 ? value.toFixed(1).replace('.0', '') : value.toFixed(0));
const percent = (part) => (part > 0 && part < 0.001 ? '< 0.1 %' : digits(part * 100) + ' %');
const bytes = (value) => (value == null ? '-' : (value / 1048576).toFixed(2) + ' MiB');
const count = (of, noun) => `${number(of)} ${noun}${of === 1 ? '' : 's'}`;
const seconds = (value) => {
  if (value == null) return '-';
  return value < 1e-3 ? digits(value * 1e6) + ' µs' : value < 1 ? digits(value * 1e3) + ' ms' : digits(value) + ' s';
};
const clock = (unix) => new Date(unix * 1e3).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
const since = (unix) => {
  const minutes = Math.max(0, Math.round((Date.now() / 1e3 - unix) / 60));
  const day = minutes < 720 ? '' : new Date(unix * 1e3).toLocaleDateString() + ' ';
  const hours = Math.round(minutes / 60);
  const ago = minutes < 90 ? minutes + ' min' : hours < 72 ? hours + ' h' : Math.round(hours / 24) + ' days';
  return `since ${day}${clock(unix)} (${ago})`;
};
const NETWORKS = ['pod', 'node'];
const FAMILIES = {
  icmp: 'IPv4', icmpv6: 'IPv6', udp: 'UDP, IPv4', udpv6: 'UDP, IPv6', tcp: 'TCP, IPv4', tcpv6: 'TCP, IPv6',
};
const hasOthers = () => [...mesh.layers].some((layer) => !layer.includes('icmp'));
const family = (protocol) => (hasOthers() && protocol.startsWith('icmp') ? 'ICMP, ' : '') + (FAMILIES[protocol] ?? protocol);
const layerName = (layer) =>
  layer.replace(/^(\S*) (.*)/, (_, network, protocol) => `${network} network${network === 'both' ? 's' : ''}, ${family(protocol)}`);

// Share of the probes that were answered or lost: those in flight are not lost yet.
const loss = ({ lost, received }) => lost / (lost + received);
// The state comes from one source, the standing from the document.
const leaves = ({ node, state }) => (state !== 'ready' && state !== 'unready') || mesh.standings.get(node) === 'leaving';
const measured = (peer) => peer.recent.lost + peer.recent.received > 0 && !leaves(peer);
// One network, or both side by side.
const layersShown = () => {
  const [network, protocol] = shown.layer.split(' ');
  return network === 'both' ? ['pod', 'node'].map((name) => `${name} ${protocol}`) : [shown.layer];
};
const findAll = (source, peer) => layersShown().map((layer) => mesh.rows.get(source)?.layers[layer]?.get(peer));
const find = (source, peer) => findAll(source, peer).find(Boolean);

const waiting = ({ recent }) => recent.run_delay_seconds / recent.seconds;

// ---- collecting ----

function node(name, zone) {
  let known = mesh.nodes.get(name);
  if (!known) mesh.nodes.set(name, (known = { name, zone: 'unknown' }));
  if (zone && known.zone === 'unknown') known.zone = zone;
  return known;
}

function addRow({ source, peers }) {
  const layers = {};
  // An agent of another version may lack a part.
  source.recent ??= {};
  for (const peer of peers) {
    peer.recent ??= {};
    // This page cannot show other networks and protocols.
    if (!NETWORKS.includes(peer.network) || !(peer.protocol in FAMILIES)) continue;
    const layer = `${peer.network} ${peer.protocol}`;
    node(peer.node, peer.zone);
    mesh.layers.add(layer);
    (layers[layer] ??= new Map()).set(peer.node, peer);
  }
  node(source.node, source.zone);
  mesh.rows.set(source.node, { source, layers });
  shown.layer ||= layersInOrder()[0] ?? '';
}

// Each report is on a line of its own. Until it arrives, the earlier data of its source stays
// visible. The last line has all the rest. An answer built in another way has lost a part: it must
// not look like a mesh without loss.
function takeLine(line, input) {
  if (input.begun && !input.end && line.startsWith('],')) {
    input.end = JSON.parse('{"rows":[' + line);
    const { missing, verdicts, starved, leaving, headline: text, state, not_gathered: left } = input.end;
    if ([missing, verdicts, starved, leaving].every(Array.isArray) && text && state && left >= 0) return;
  }
  if (input.end || input.begun === (line === '{"rows":[')) {
    throw new Error(`the answer cannot be read after ${count(input.rows.length, 'report')}`);
  }
  if (!input.begun) {
    input.begun = true;
    return;
  }
  try {
    const row = JSON.parse(line.replace(/^,/, ''));
    addRow(row);
    input.rows.push(row);
  } catch {
    // One agent with an unreadable report does not hide the others.
    input.unread.push({ node: line.match(/"node":"([^"\\]*)"/)?.[1] ?? 'an agent', error: 'its report cannot be read' });
  }
}

// A complete collection replaces all data: sources that are not in it are no longer shown.
function settle({ rows, unread, end }) {
  for (const known of [mesh.rows, mesh.nodes, mesh.missing, mesh.layers]) known.clear();
  rows.forEach(addRow);
  mesh.standings = new Map(['starved', 'leaving'].flatMap((is) => end[is].map((name) => [name, is])));
  for (const { node: name, error } of [...end.missing, ...unread]) {
    node(name);
    mesh.missing.set(name, error);
  }
  const { verdicts, headline: text, state, not_gathered: notCollected, leaving_not_listed: notListed } = end;
  Object.assign(mesh, { verdicts, headline: text, state, notCollected, notListed, at: new Date() });
}

async function collect() {
  const quit = new AbortController();
  let timer = setTimeout(() => quit.abort(), ANSWER_TIME);
  try {
    const answer = await fetch('api/v1/mesh', { cache: 'no-store', signal: quit.signal });
    if (!answer.ok) {
      const why = (await answer.text()).slice(0, 200).trim(), after = answer.headers.get('retry-after');
      throw Object.assign(new Error(`the agent answers ${answer.status}: ${why}`), { after });
    }
    const pieces = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const input = { begun: false, rows: [], unread: [], end: null };
    let rest = '', worked = performance.now();
    for (;;) {
      const { done, value } = await pieces.read();
      if (done) break;
      clearTimeout(timer);
      timer = setTimeout(() => quit.abort(), ANSWER_TIME);
      let from = 0;
      for (let to; (to = value.indexOf('\n', from)) >= 0; from = to + 1) {
        takeLine(rest + value.slice(from, to), input);
        rest = '';
        if (performance.now() - worked < 12) continue;
        // Hundreds of reports take a second to read: keys and the picture are handled between them.
        progress(input.rows.length);
        await new Promise((turn) => setTimeout(turn));
        worked = performance.now();
      }
      rest += value.slice(from);
    }
    if (!input.end || rest) throw new Error(`the answer broke off after ${count(input.rows.length, 'report')}`);
    settle(input);
  } catch (error) {
    throw quit.signal.aborted ? new Error(`no data for ${ANSWER_TIME / 1e3} s`) : error;
  } finally {
    clearTimeout(timer);
  }
}

function progress(rows) {
  if (!mesh.at) $('age').textContent = `${count(rows, 'report')} so far`;
  if (performance.now() - turns.drawn < 150) return;
  turns.drawn = performance.now();
  controls();
  redraw();
}

async function turn() {
  if (turns.running) return;
  turns.running = $('again').disabled = true;
  const began = performance.now();
  let wait;
  try {
    await collect();
    const took = performance.now() - began;
    wait = Math.max(PERIOD, 10 * took);
    turns.failures = 0;
    $('trouble').hidden = true;
    showMesh(took / 1e3);
  } catch (error) {
    // Waits as long as the agent asks, and twice as long after each further failure,
    // up to two minutes.
    wait = Math.min(120e3, (Number(error.after) || 5) * 1e3 * 2 ** turns.failures++);
    showTrouble(error, wait / 1e3);
  }
  turns.running = $('again').disabled = false;
  plan(wait);
}

function plan(wait) {
  clearTimeout(turns.timer);
  turns.due = Date.now() + wait;
  if (!turns.paused && document.visibilityState === 'visible') turns.timer = setTimeout(turn, wait);
}

function resume() {
  clearTimeout(turns.timer);
  if (!turns.running) plan(Math.max(0, turns.due - Date.now()));
}

// ---- words ----

function showMesh(took) {
  const agentsNow = count(mesh.rows.size, 'agent');
  $('age').textContent = `Data of ${mesh.at.toLocaleTimeString()}: ${agentsNow}, collected in ${seconds(took)}`;
  controls();
  headline();
  agents();
  redraw();
  if (shown.link) openLink(shown.link);
}

function showTrouble({ message }, wait) {
  const picture = mesh.at ? `The data is of ${mesh.at.toLocaleTimeString()} or newer.` : 'Nothing is complete.';
  const next = turns.paused ? '' : ` The next attempt is in ${Math.round(wait)} s.`;
  $('trouble').textContent = `Collection failed at ${new Date().toLocaleTimeString()}: ${message}. ${picture}${next}`;
  $('trouble').hidden = false;
  if (!mesh.at) $('headline').textContent = 'No verdict: the collection failed';
  controls();
  redraw();
}

function headline() {
  const { verdicts, missing, notCollected, state } = mesh, unknown = [];
  const peers = [...mesh.rows.values()].flatMap(({ layers }) => Object.values(layers))
    .flatMap((layer) => [...layer.values()]);
  const links = peers.filter(measured), lossy = links.filter(({ recent }) => recent.lost).length;
  if (missing.size) unknown.push(`${count(missing.size, 'agent')} did not answer`);
  if (notCollected) unknown.push(`${count(notCollected, 'agent')} not collected`);
  // The document's headline is about the reports that were judged. The missing
  // ones are listed apart.
  const line = $('headline'), isWhole = state !== 'well' || !unknown.length;
  line.className = state !== 'well' ? 'bad' : links.length && isWhole ? 'well' : '';
  line.textContent = isWhole ? mesh.headline : `Nothing stands out, but ${unknown.join(' and ')}`;
  document.title = `${verdicts.length ? `(${verdicts.length}) ` : ''}Mesh - KubeCanary`;
  const silent = peers.length - links.length;
  const facts = [`${count(links.length, 'link')} measured in the last minute, ${number(lossy)} of them with loss`];
  if (silent) facts.push(`${count(silent, 'known link')} not measured`);
  if (mesh.notListed) facts.push(`${count(mesh.notListed, 'further node')} leaving`);
  facts.push(...ofMembers());
  $('summary').textContent = facts.concat(isWhole ? unknown : []).join('; ');
  const held = shown.verdict, same = (each) => ['kind', 'subject', 'network', 'protocol'].every((key) => each[key] === held[key]);
  shown.verdict = held && (verdicts.find(same) ?? null);
  $('verdicts').replaceChildren(...verdicts.map((verdict) => make('li', {}, verdictButton(verdict))));
}

// Notes on a partial mesh and on old peer lists. Old lists lack new nodes and
// still contain removed ones.
function ofMembers() {
  const sources = [...mesh.rows.values()].map(({ source }) => source);
  const most = Math.max(...sources.map(({ members }) => members ?? 0));
  const old = sources.filter(({ peer_list_age_seconds: age }) => age === null || age > LIST_AGE);
  const names = old.slice(0, 5).map(({ node: name, peer_list_age_seconds: age }) => `${name} (${listAge(age)})`);
  if (old.length > 5) names.push(`${old.length - 5} more`);
  $('lists').textContent = old.length ? `Old peer lists: ${names.join(', ')}` : '';
  const lacking = sources.filter(({ watchers_missing: missing }) => missing).length;
  const watchers = sources.flatMap((source) => (source.watchers > 0 ? source.watchers : []));
  return [
    ...(most ? [count(most, 'member')] : []),
    ...(watchers.length ? [`each probed by at least ${Math.min(...watchers)} others`] : []),
    ...(lacking ? [`${count(lacking, 'node')} with too few watchers`] : []),
  ];
}
const listAge = (age) => (age === null ? 'never had one' : age > 90 ? Math.round(age / 60) + ' min' : seconds(age));

const sentence = ({ subject, evidence }) =>
  evidence.startsWith(subject) ? evidence : `${subject.replace('->', ' → ')}: ${evidence}`;

// A button that shows on the map what a verdict is about, and hides it again.
function verdictButton(verdict) {
  const { kind, direction, network, protocol, since_unix_seconds: begun } = verdict;
  // An agent that is late or silent has no direction.
  const facts = kind.startsWith('agent') ? [] : [WAYS[direction] ?? direction, `${network} network`];
  // Without a protocol, all share the cause.
  if (facts.length && protocol && hasOthers()) facts.push(`${protocol.toUpperCase()} only`);
  if (begun != null) facts.push(since(begun));
  const button = make('button', { type: 'button' }, make('b', {}, KINDS[kind] ?? kind), sentence(verdict),
    make('span', { className: 'dim' }, ` ${facts.join(', ')}`));
  set(button, 'aria-pressed', shown.verdict === verdict);
  button.onclick = () => {
    shown.verdict = shown.verdict === verdict ? null : verdict;
    for (const other of $('verdicts').querySelectorAll('button')) {
      set(other, 'aria-pressed', other === button && shown.verdict !== null);
    }
    const about = `${network} ${protocol ?? ''}`, layer = layersInOrder().find((known) => known.startsWith(about));
    if (layer && !layersShown().some((of) => of.startsWith(about))) shown.layer = layer;
    controls();
    redraw();
    if (shown.verdict) reveal(verdict);
  };
  return button;
}

// The pod network comes first, ICMP comes first, and IPv4 comes first.
const layersInOrder = () => [...mesh.layers].sort((a, b) => (a.replace('pod', '') < b.replace('pod', '') ? -1 : 1));

// A switch is shown only if there is more than one choice.
function controls() {
  if (!layersShown().every((of) => mesh.layers.has(of))) shown.layer = layersInOrder()[0] ?? '';
  const layers = layersInOrder().map((layer) => layer.split(' ')), [network, protocol] = shown.layer.split(' ');
  const networks = [...new Set(layers.map(([name]) => name))];
  const hasBoth = ['pod', 'node'].every((name) => mesh.layers.has(`${name} ${protocol}`));
  if (hasBoth) networks.push('both');
  const protocols = layers.filter(([name]) => name === (network === 'both' ? 'node' : network)).map(([, name]) => name);
  const change = (to) => {
    const there = to === 'both' ? [[to, protocol]] : layers.filter(([name]) => name === to);
    return there.find(([, name]) => name === protocol) ?? there[0];
  };
  const switches = [
    ['Colour', shown.measure, MEASURES, (to) => (shown.measure = to)],
    ['Network', network, networks.map((name) => [name, name]), (to) => (shown.layer = change(to).join(' '))],
    [hasOthers() ? 'Protocol' : 'Family', protocol, protocols.map((name) => [name, family(name)]), (to) => (shown.layer = `${network} ${to}`)],
    ['Size', null, [[-1, '-', 'Smaller cells'], [0, 'Fit', 'Fit'], [1, '+', 'Larger cells']], zoom],
  ].filter(([, , options]) => options.length > 1);
  const state = JSON.stringify(switches), box = $('controls');
  if (box.dataset.state === state) return;
  const focus = [...box.querySelectorAll('button')].findIndex((button) => button === document.activeElement);
  box.dataset.state = state;
  box.replaceChildren(...switches.map(([title, now, options, choose]) => make('fieldset', {}, make('legend', {}, title),
    ...options.map(([value, text, label]) => {
      const onclick = () => {
        choose(value);
        controls();
        redraw();
      };
      const button = make('button', { type: 'button', onclick }, text);
      set(button, ...(label ? ['aria-label', label] : ['aria-pressed', value === now]));
      return button;
    }))));
  box.querySelectorAll('button')[focus]?.focus();
  legend();
}

// ---- the agents' table ----

const builtWith = ({ allocator, narenas, linkage }) => {
  const arenas = narenas == null ? [] : [`narenas ${narenas}`];
  return [allocator ?? '-', ...arenas, ...(linkage === 'c-shim' ? [linkage] : [])].join(', ');
};

// Title and displayed value of each column; for figures also the sort key.
const COLUMNS = [
  ['Node', (s) => s.node],
  ['Zone', (s) => s.zone],
  ['Version', (s) => s.version ?? '-'],
  ['Allocator', builtWith],
  ['RSS', (s) => bytes(s.rss_bytes), (s) => s.rss_bytes],
  ['CPUs', (s) => number(s.cpus), (s) => s.cpus],
  ['Send lag p99', (s) => seconds(s.recent.send_lag_p99_seconds), (s) => s.recent.send_lag_p99_seconds],
  ['Read delay p99', (s) => seconds(s.recent.read_delay_p99_seconds), (s) => s.recent.read_delay_p99_seconds],
  ['Waits for CPU', (s) => (waiting(s) >= 0 ? percent(waiting(s)) : '-'), waiting],
  ['Skipped', (s) => number(s.recent.probes_skipped), (s) => s.recent.probes_skipped],
  ['List age', (s) => (s.peer_list_age_seconds === undefined ? '-' : listAge(s.peer_list_age_seconds)),
    (s) => s.peer_list_age_seconds ?? Infinity],
  ['Probed by', (s) => number(s.watchers) + (s.watchers_missing ? ` (${s.watchers_missing} too few)` : ''), (s) => s.watchers],
  ['Drops', (s) => number(s.recent.receive_queue_drops), (s) => s.recent.receive_queue_drops],
  ['Standing', (s) => mesh.standings.get(s.node) ?? ''],
];

function agents() {
  const sources = [...mesh.rows.values()].map(({ source }) => source), [, shows, sorts] = COLUMNS[sorting.by];
  const key = sorts ?? shows;
  sources.sort((a, b) => inOrder(key(a), key(b)) || inOrder(a.node, b.node));
  if (sorting.down) sources.reverse();
  const rss = sources.flatMap(({ rss_bytes: value }) => value ?? []).sort((a, b) => a - b);
  const kinds = (of) => {
    const counts = {};
    for (const source of sources) counts[of(source)] = (counts[of(source)] ?? 0) + 1;
    return Object.entries(counts).map(([name, times]) => `${name} (${times})`).join(', ');
  };
  const memory = `RSS: median ${bytes(rss[rss.length >> 1])}, most ${bytes(rss.at(-1))}`;
  $('agents-summary').textContent = !sources.length ? 'None answered.'
    : `Versions: ${kinds((source) => source.version ?? '-')}. Allocators: ${kinds(builtWith)}. ${memory}.`;
  const heads = COLUMNS.map(([title, , numeric], by) => {
    const onclick = () => {
      Object.assign(sorting, { by, down: sorting.by === by ? !sorting.down : Boolean(numeric) || title === 'Standing' });
      agents();
      $('agents').querySelectorAll('th button')[by].focus();
    };
    const button = make('button', { type: 'button', onclick }, title);
    const head = make('th', { scope: 'col', className: numeric ? 'number' : '' }, button);
    if (sorting.by === by) set(head, 'aria-sort', sorting.down ? 'descending' : 'ascending');
    return head;
  });
  const note = (text) => make('td', { colSpan: COLUMNS.length - 1, className: 'flag' }, text);
  const silent = [...mesh.missing].map(([name, error]) =>
    make('tr', {}, make('td', {}, name), note(`did not answer: ${error}`)));
  const rows = sources.map((source) => make('tr', {}, ...COLUMNS.map(([title, of, numeric]) =>
    make('td', { className: title === 'Standing' ? 'flag' : numeric ? 'number' : '' }, of(source)))));
  if (mesh.notCollected) rows.push(make('tr', {}, note(`${count(mesh.notCollected, 'further agent')} not collected`)));
  $('agents').querySelector('thead').replaceChildren(make('tr', {}, ...heads));
  $('agents').querySelector('tbody').replaceChildren(...silent, ...rows);
}

$('pause').onclick = () => {
  turns.paused = !turns.paused;
  set($('pause'), 'aria-pressed', turns.paused);
  resume();
};
$('again').onclick = turn;
document.onvisibilitychange = resume;
