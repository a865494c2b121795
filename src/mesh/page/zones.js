// The matrix of zones, by the figures of a judge, and the nodes of one of its cells, whose agents
// are asked.

// Nodes of a zone that are drawn.
const PART_MAX = 100;

// The pair of zones whose nodes are shown, as in the subject of a verdict.
const pairShown = () => (isLarge() ? shown.pair : '');
const isCollected = () => mesh.at && mesh.part.pair === pairShown();
// The names of a zone's nodes, those with most loss first.
const worstOf = (zone, way) => mesh.all.rows.filter((row) => row.zone === zone)
  .sort((a, b) => share(b[way]) - share(a[way])).map((row) => row.node);

async function collect() {
  const pair = pairShown(), [from, to] = pair.split('->'), sources = worstOf(from, 'out'), rows = sources.slice(0, PART_MAX);
  settle(readMesh(await (await ask('mesh' + (pair && '/' + rows.map(encodeURIComponent)))).text()));
  const peers = worstOf(to, 'in').filter((name) => mesh.nodes.has(name)), columns = peers.slice(0, PART_MAX);
  const note = pair && `${pair.replace('->', ' → ')}: ${rows.length} of ${count(sources.length, 'source')}, ${columns.length} of the ${count(peers.length, 'peer')} they probe there; those with most loss.`;
  mesh.part = { pair, rows, columns, note };
}

function showZones() {
  const { zone_pairs: pairs } = mesh.all, zones = [...new Set(pairs.flatMap((of) => [of.source_zone, of.peer_zone]))].sort(inOrder);
  const cell = (from, to) => {
    const of = pairs.find((one) => one.source_zone === from && one.peer_zone === to), pair = `${from}->${to}`, is = pair === shown.pair;
    if (!of) return '-';
    const onclick = () => {
      keep({ pair: is ? '' : pair });
      showTables();
      if (!is) turn(true);
    };
    const made = make('button', { onclick, ariaPressed: is, title: `${number(of.losing_links)} of ${count(of.links, 'link')} with loss` }, lost(of), ` ${seconds(of.rtt_p50_seconds)}`);
    made.style.borderColor = `var(--loss${LOSS.findIndex((bound) => share(of) <= bound)})`;
    return made;
  };
  $('zones-box').hidden = shown.matrix !== 'zones';
  put('zones-note', isCollected() && mesh.part.note || 'Loss and median RTT. A press on a cell asks the agents of its nodes.');
  table($('zones'), '', [['from ↓ to →', (zone) => zone], ...zones.map((to) => [to, (from) => cell(from, to)])], zones);
}
