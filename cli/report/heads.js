// The grid of all heads, and the head and row that were chosen.
const $ = id => document.getElementById(id);
const state = { head: 0, mode: 'lift', row: null, tile: null, sort: null };
const heads = data.found;
const chosen = () => heads[state.head];
const mapRows = data.maps.rows, mapColumns = data.maps.columns;
const wholeCells = mapRows === data.queries && mapColumns === data.keys;

// How cells are coloured in each mode: value of a cell, ends, palette, names of the ends.
const kLogLow = -5;
function scaleOf(mode, head) {
  const limit = data.lift_limit;
  if (mode === 'lift') {
    return { value: cell => liftAt(head, cell), low: -limit, high: limit, colours: 'lift',
             ends: [`−${digits(limit, 3)}`, 'log₂ of weight / even weight', `+${digits(limit, 3)}`] };
  }
  const seen = cell => of(head, 'lift')[cell] ? meanAt(head, cell) : NaN;
  if (mode === 'log') {
    return { value: cell => Math.log10(Math.max(seen(cell), 10 ** kLogLow)), low: kLogLow, high: 0,
             colours: 'share', ends: ['10⁻⁵', 'mean weight, logarithmic', '1'] };
  }
  let most = 0;
  for (let cell = 0; cell < mapRows * mapColumns; ++cell) most = Math.max(most, meanAt(head, cell) || 0);
  return { value: seen, low: 0, high: most || 1, colours: 'share',
           ends: ['0', 'mean weight, linear', digits(most || 1, 3)] };
}
function cellsOf(mode, head) {
  const scale = scaleOf(mode, head);
  return { ...scale, rows: mapRows, columns: mapColumns,
           index: (r, c) => indexIn(scale.value(r * mapColumns + c), scale.low, scale.high) };
}

// The grid of all heads.
const buttons = [];
function buildPoster() {
  const host = $('poster');
  host.style.setProperty('--heads', data.heads);
  host.append(make('span', {}));
  for (let head = 0; head < data.heads; ++head) host.append(make('span', { class: 'name' }, String(head)));
  heads.forEach((head, i) => {
    if (head.head === 0) host.append(make('span', { class: 'name' }, `L${head.layer}`));
    const share = head.entropy_share;
    const warned = head.remarks.some(remark => remark.severity === 'warning');
    const button = make('button', {
      type: 'button', tabindex: i ? -1 : 0, 'aria-pressed': 'false', class: warned ? 'mini warned' : 'mini',
      'aria-label': `${headName(head)}, entropy ${percent(share)} of the most there can be` +
                    (warned ? ', with a warning' : ''),
      title: `${headName(head)}: entropy ${percent(share)}`, onclick: () => chooseHead(i) },
      make('canvas', { width: mapColumns, height: mapRows, 'aria-hidden': 'true' }),
      make('span', { class: 'bar', 'aria-hidden': 'true' }));
    button.lastChild.style.setProperty('--share', share === null ? 0 : share);
    button.addEventListener('keydown', event => moveHead(event, i));
    buttons.push(button);
    host.append(button);
  });
}
function moveHead(event, i) {
  const row = Math.floor(i / data.heads) * data.heads;
  const to = { ArrowLeft: i - 1, ArrowRight: i + 1, ArrowUp: i - data.heads, ArrowDown: i + data.heads,
               Home: row, End: row + data.heads - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  if (to >= 0 && to < heads.length) { chooseHead(to); buttons[to].focus(); }
}
function paintPoster() {
  heads.forEach((head, i) => {
    const context = buttons[i].firstChild.getContext('2d');
    context.clearRect(0, 0, mapColumns, mapRows);
    if (mapRows && mapColumns) context.drawImage(imageOf(cellsOf(state.mode, head)), 0, 0);
  });
  if (!heads.length) return;
  const scale = scaleOf(state.mode, chosen());
  // Linear maps end at a largest weight of their own.
  if (state.mode === 'linear') scale.ends[2] = 'largest of each head';
  paintLegend($('legend'), ...legendOf(scale));
}
const legendOf = scale => [scale.colours, ...scale.ends];

function chooseHead(i) {
  buttons[state.head].setAttribute('aria-pressed', 'false');
  buttons[state.head].tabIndex = -1;
  state.head = i;
  state.tile = null;
  buttons[i].setAttribute('aria-pressed', 'true');
  buttons[i].tabIndex = 0;
  const rows = [...of(chosen(), 'top').keys()];
  if (!rows.includes(state.row)) {
    const stories = [...of(chosen(), 'stories').keys()];
    state.row = stories[stories.length >> 1] ?? rows[rows.length >> 1] ?? null;
  }
  showHead();
}

let map = null;
function showHead() {
  const head = chosen();
  $('head-title').textContent = headName(head);
  $('remarks').replaceChildren(...head.remarks.map(remark => make('li', { class: remark.severity },
    make('strong', {}, remark.severity === 'warning' ? 'Warning. ' : ''), remark.sentence,
    remark.suggestion ? make('span', { class: 'quiet' }, ' Try: ' + remark.suggestion) : null)));
  showTiles(head);
  showMap(head);
  showRow(head);
  paintHistogram($('histogram'), head);
  paintDistances($('distance'), head);
  $('numbers').replaceChildren(...data.numbers.map((number, i) => make('tr', { title: number.title },
    make('th', { scope: 'row' }, number.name), make('td', {}, digits(head.numbers[i], 6)),
    make('td', { class: 'quiet' }, number.unit))));
}

function namesOf(count, cells, name) {
  if (count === 0) return [];
  if (count === cells && count <= 40) return Array.from({ length: count }, (_, i) => shortened(name(i), 14));
  return count > 1 ? ['0', String(count - 1)] : ['0'];
}

function describeCell(head, r, c) {
  const cell = r * mapColumns + c;
  const rows = reachOf(r, mapRows, data.queries), keys = reachOf(c, mapColumns, data.keys);
  const where = reachText('Query', 'Queries', rows, namedRow) + ' → ' + reachText('key', 'keys', keys, named);
  const lift = liftAt(head, cell);
  if (Number.isNaN(lift)) {
    return where + (!data.maps.exact ? ': hidden, or no number'
                                     : Number.isNaN(meanAt(head, cell)) ? ': no number' : ': hidden');
  }
  // The first step of bytes, and the last one of lift, also stand for all beyond.
  const about = what => data.maps.exact ? ''
    : of(head, what)[cell] === 1 ? '≤ ' : what === 'lift' && of(head, what)[cell] === 255 ? '≥ ' : '≈ ';
  const mean = wholeCells ? 'weight' : 'mean weight', value = meanAt(head, cell);
  const shown = data.maps.exact ? 4 : value < 1e-4 ? 3 : 2;   // digits, with an exponent one fewer
  return `${where}: ${mean} ${about('mean')}${digits(value, shown)}, ` +
         `lift ${about('lift')}${signed(lift)}`;
}

function showMap(head) {
  map ||= new Grid($('map'), 'Map of the head');
  if (state.tile !== null) return showTile(head, of(head, 'tiles')[state.tile]);
  const view = cellsOf(state.mode, head);
  const most = Math.max(0, ...of(head, 'columns').filter(Number.isFinite));
  map.show({ ...view, aspect: Math.min(Math.max(mapRows / (mapColumns || 1), 0.3), 2),
    rowNames: namesOf(data.queries, mapRows, row => selfAttention ? tokenOf(row) : String(row)),
    columnNames: namesOf(data.keys, mapColumns, tokenOf),
    right: { values: of(head, 'entropy'), most: 1 }, below: { values: of(head, 'columns'), most: most || 1 },
    boxes: of(head, 'tiles').map(tile => ({
      r0: tile.row * mapRows / data.queries, r1: (tile.row + tile.rows) * mapRows / data.queries,
      c0: tile.key * mapColumns / data.keys, c1: (tile.key + tile.columns) * mapColumns / data.keys })),
    describe: (r, c) => describeCell(head, r, c),
    hint: 'Point at a cell, or press the arrow keys here. Bars: right, entropy share of rows (0 to 1); ' +
      `below, share of all weight in a column of keys (${most ? `longest ${percent(most)}` : 'not known'}).`,
    pick: r => chooseRow(nearestRow(reachOf(r, mapRows, data.queries)[0]), false) });
  paintLegend($('map-legend'), ...legendOf(view));
}

function showTile(head, tile) {
  const most = Math.max(...tile.weights.filter(Number.isFinite), 1e-30);
  const ways = {
    lift: { value: (p, r) => Math.log2(p * tile.visible[r]), low: -data.lift_limit, high: data.lift_limit,
            colours: 'lift', ends: [`−${digits(data.lift_limit, 3)}`, 'log₂ of weight / even weight',
                                    `+${digits(data.lift_limit, 3)}`] },
    linear: { value: p => p, low: 0, high: most, colours: 'share', ends: ['0', 'weight, linear', digits(most, 3)] },
    log: { value: p => Math.log10(Math.max(p, 10 ** kLogLow)), low: kLogLow, high: 0, colours: 'share',
           ends: ['10⁻⁵', 'weight, logarithmic', '1'] } };
  const way = ways[state.mode];
  const at = (r, c) => tile.weights[r * tile.columns + c];
  const small = tile.rows <= 40 && tile.columns <= 40;
  map.show({ rows: tile.rows, columns: tile.columns, colours: way.colours,
    aspect: Math.min(Math.max(tile.rows / tile.columns, 0.3), 2),
    index: (r, c) => at(r, c) > 0 ? indexIn(way.value(at(r, c), r), way.low, way.high) : 0,
    rowNames: small ? Array.from({ length: tile.rows }, (_, r) => shortened(namedRow(tile.row + r), 14))
                    : [String(tile.row), String(tile.row + tile.rows - 1)],
    columnNames: small ? Array.from({ length: tile.columns }, (_, c) => shortened(named(tile.key + c), 14))
                       : [String(tile.key), String(tile.key + tile.columns - 1)],
    describe: (r, c) => `Query ${namedRow(tile.row + r)} → key ${named(tile.key + c)}: ` +
                        `weight ${digits(at(r, c), 6)}` +
                        (at(r, c) > 0 ? `, lift ${signed(Math.log2(at(r, c) * tile.visible[r]))}` : ''),
    hint: 'Exact weights of single rows and keys; striped: 0, or no number.',
    pick: r => chooseRow(nearestRow(tile.row + r), false) });
  paintLegend($('map-legend'), way.colours, ...way.ends);
}

function showTiles(head) {
  const tiles = of(head, 'tiles');
  $('tiles').hidden = !head.tiles_in_all;
  const option = (text, tile) => make('button', { type: 'button', 'aria-pressed': String(state.tile === tile),
    onclick: () => { state.tile = tile; showTiles(head); showMap(head); } }, text);
  const focused = $('tiles').contains(document.activeElement);
  $('tiles').replaceChildren(option('Whole map', null), ...tiles.map((tile, i) => option(
    `Exact: queries ${tile.row}–${tile.row + tile.rows - 1}, keys ${tile.key}–${tile.key + tile.columns - 1}`, i)));
  if (tiles.length < head.tiles_in_all) {
    $('tiles').append(make('span', { class: 'quiet' }, `${head.tiles_in_all - tiles.length} more had no room in this page`));
  }
  if (focused) $('tiles').querySelector('[aria-pressed=true]').focus();
}

// The row that arcs and story are of.
function nearestRow(row) {
  const known = [...of(chosen(), 'top').keys(), ...of(chosen(), 'stories').keys()];
  return known.reduce((best, one) => Math.abs(one - row) < Math.abs(best - row) ? one : best, known[0] ?? null);
}
function chooseRow(row, focus) {
  const head = chosen();
  if (row === null || (!of(head, 'top').has(row) && !of(head, 'stories').has(row))) return;
  state.row = row;
  showRow(head);
  if (focus) $('arcs').querySelector(`[data-row="${row}"]`)?.focus();
}
function showRow(head) {
  const tops = of(head, 'top'), stories = of(head, 'stories');
  const rows = [...new Set([...tops.keys(), ...stories.keys()])].sort((a, b) => a - b);
  $('row-card').hidden = !rows.length;
  if (!rows.length) return;
  $('row').replaceChildren(...rows.map(row => {
    const option = make('option', { value: row }, namedRow(row) + (stories.has(row) ? ' · story' : ''));
    option.selected = row === state.row;
    return option;
  }));
  const top = tops.get(state.row);
  $('covered').textContent = top && !top.keys.length
    ? `Row ${namedRow(state.row)} has no weights: it sees no key, or is NaN.`
    : top
    ? `Row ${namedRow(state.row)}: the ${top.keys.length === 1 ? 'one weight' : `${top.keys.length} largest weights`} ` +
      `shown ${top.keys.length === 1 ? 'holds' : 'hold'} ${percent(top.mass)} of it: ` +
      top.keys.slice(0, 5).map((key, i) => `${named(key)} ${digits(top.weights[i], 3)}`).join(', ') +
      (top.keys.length > 5 ? ' …' : '')
    : 'The largest weights of this row are not in this page.';
  if (top) paintArcs($('arcs'), state.row, top, (row, focus) => chooseRow(row, focus));
  else $('arcs').replaceChildren();
  const story = stories.get(state.row);
  $('story-note').textContent = story
    ? (story.keys.length < data.keys ? `${story.keys.length} of ${data.keys} keys, those with the largest ` +
       `weights; they hold ${percent(story.mass)} of the row.` : '')
    : stories.size ? `Step by step there are rows ${[...stories.keys()].map(namedRow).join(', ')}.` : '';
  if (stories.size < head.stories_in_all) {
    $('story-note').append(` ${counted(head.stories_in_all - stories.size, 'more story', 'more stories')} had no room in this page.`);
  }
  if (story) paintStory($('story'), { ...story, row: state.row });
  else $('story').replaceChildren();
}
