'use strict'
// Values under the pointer, read from the drawn lines.
const tip = document.getElementById('tip')
const numbers = text => text.split(' ').map(Number)
const places = path => path.slice(1).split('L').map(numbers)

// From a height in a chart to the value there, and back.
function scale(svg) {
  const [low, high, bottom, top] = numbers(svg.dataset.y)
  const isLog = svg.dataset.y.endsWith('log')
  const share = value => isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low)
  return {
    value: y => {
      const part = (y - bottom) / (top - bottom)
      return isLog ? low * Math.pow(high / low, part) : low + part * (high - low)
    },
    height: value => bottom + share(value) * (top - bottom)
  }
}

function values(svg, x) {
  const [firstStep, lastStep, left, right] = numbers(svg.dataset.x)
  const { value } = scale(svg)
  const said = []
  for (const path of svg.querySelectorAll('path[data-name]')) {
    let nearest = null
    for (const point of places(path.getAttribute('d')))
      if (!nearest || Math.abs(point[0] - x) < Math.abs(nearest[0] - x)) nearest = point
    const step = firstStep + (nearest[0] - left) / (right - left) * (lastStep - firstStep)
    const smoothed = path.dataset.raw ? ' (smoothed)' : ''
    said.push(`${path.dataset.name}: ${Number(value(nearest[1]).toPrecision(3))} at step ${Math.round(step)}${smoothed}`)
  }
  return said
}

// Lines of training as moving means: of each value the share `weight` is the mean before it. The line as it was
// stays behind, pale.
function smooth() {
  const slider = document.querySelector('#smoothing input')
  if (!slider) return
  const weight = Number(slider.value)
  slider.parentElement.hidden = false
  slider.nextElementSibling.value = weight
  for (const path of document.querySelectorAll('svg.chart path.line[data-name]:not(.dash)')) {
    if (path.dataset.raw) {
      path.setAttribute('d', path.dataset.raw)
      path.previousElementSibling.remove()
      delete path.dataset.raw
    }
    if (weight === 0) continue
    const pale = path.cloneNode()
    pale.removeAttribute('data-name')
    pale.classList.add('raw')
    path.before(pale)
    path.dataset.raw = path.getAttribute('d')
    const { value, height } = scale(path.closest('svg'))
    let [sum, share] = [0, 0]
    const points = places(path.dataset.raw).map(([x, y]) => {
      sum = weight * sum + (1 - weight) * value(y)
      share = weight * share + (1 - weight)
      return `${x} ${height(sum / share).toFixed(2)}`
    })
    path.setAttribute('d', `M${points.join('L')}`)
  }
}
smooth()
addEventListener('input', event => { if (event.target.closest('#smoothing')) smooth() })

function show(event) {
  const svg = event.target.closest && event.target.closest('svg.chart')
  tip.hidden = !svg
  if (!svg) return
  const box = svg.getBoundingClientRect()
  const lines = values(svg, (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width)
  tip.replaceChildren(...lines.map(line => Object.assign(document.createElement('p'), { textContent: line })))
  const wide = tip.offsetWidth
  const left = event.clientX + 16 + wide > innerWidth ? event.clientX - 16 - wide : event.clientX + 16
  tip.style.left = `${Math.max(4, left)}px`
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 4))}px`
}
addEventListener('pointermove', show)
addEventListener('pointerdown', show)
addEventListener('scroll', () => { tip.hidden = true }, { passive: true })

// A page that is served asks for itself again. What the reader has opened stays open, and the page stays in place.
let seen = null
async function refresh() {
  if (document.hidden) return
  const state = text => { document.getElementById('state').textContent = text }
  try {
    const answer = await fetch(location.href, { cache: 'no-store' })
    const text = await answer.text()
    if (!answer.ok) return state(text)
    if (text !== seen) {
      seen = text
      const next = new DOMParser().parseFromString(text, 'text/html').querySelector('main')
      const open = [...document.querySelectorAll('details')].map(details => details.open)
      next.querySelectorAll('details').forEach((details, index) => { details.open = open[index] === true })
      for (const scale of document.querySelectorAll('.switch input:checked')) {
        const same = next.querySelector(`#${scale.id}`)
        if (same) same.checked = true
      }
      const [slider, other] = [document, next].map(part => part.querySelector('#smoothing input'))
      if (slider && other) other.value = slider.value
      const aside = [...document.querySelectorAll('.wide')].map(wide => wide.scrollLeft)
      const top = scrollY
      document.querySelector('main').replaceWith(next)
      smooth()
      document.querySelectorAll('.wide').forEach((wide, index) => { wide.scrollLeft = aside[index] || 0 })
      scrollTo(0, top)
    }
    state('Live')
  } catch {
    state('Nobody answers: the page stays as it is')
  }
}
if (document.body.hasAttribute('data-live')) {
  refresh()
  setInterval(refresh, 2000)
}
