// The local search: initial solution, gain of a candidate, binary search on the cost of a centre.
#include "local_search.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

LocalSearch::LocalSearch(Team &team, Points &points, std::size_t capacity, const SearchLimits &limits, std::uint64_t seed)
    : team_(team), points_(points), limits_(limits), rng_(rng_of(seed, 1)) {
    is_center_ = static_cast<char *>(need_memory(std::calloc(capacity, 1), capacity));
    switch_membership_ = static_cast<char *>(need_memory(std::calloc(capacity, 1), capacity));
    center_table_ = static_cast<int *>(need_memory(std::calloc(capacity, sizeof(int)), capacity * sizeof(int)));
}

LocalSearch::~LocalSearch() {
    std::free(is_center_);
    std::free(switch_membership_);
    std::free(center_table_);
}

// visit(slice, first, last) for every slice, each in the member that always has that slice.
template <class Visit> void LocalSearch::each_slice(const Visit &visit) {
    team_.run([&](int member) {
        const Range mine = part_of(slices(), static_cast<std::size_t>(member), static_cast<std::size_t>(team_.size()));
        for (std::size_t slice = mine.begin; slice < mine.end; slice++) {
            const std::size_t first = slice * kSlicePoints;
            visit(slice, first, std::min(first + kSlicePoints, points_.num));
        }
    });
}

double LocalSearch::sum_of_slices() const {
    double sum = 0;
    for (std::size_t slice = 0; slice < slices(); slice++) sum += work_mem_[slice];
    return sum;
}

// All points served by x alone.
void LocalSearch::open_alone(std::size_t x) {
    std::fill(is_center_, is_center_ + points_.num, 0);
    is_center_[x] = 1;
    open_.assign(1, x);
    work_mem_.resize(std::max(work_mem_.size(), slices()));
    each_slice([&](std::size_t slice, std::size_t first, std::size_t last) {
        double sum = 0;
        for (std::size_t i = first; i < last; i++) {
            Point &point = points_.p[i];
            point.cost = squared_distance(point.coord, points_.p[x].coord, points_.dim) * point.weight;
            point.assign = static_cast<std::int64_t>(x);
            sum += point.cost;
        }
        work_mem_[slice] = sum;
    });
    cost_ = sum_of_slices() + z_;
}

// One more centre: every point goes to the nearer one.
void LocalSearch::open(std::size_t x) {
    is_center_[x] = 1;
    open_.push_back(x);
    each_slice([&](std::size_t slice, std::size_t first, std::size_t last) {
        double sum = 0;
        for (std::size_t i = first; i < last; i++) {
            Point &point = points_.p[i];
            const float cost = squared_distance(point.coord, points_.p[x].coord, points_.dim) * point.weight;
            if (cost < point.cost) {
                point.cost = cost;
                point.assign = static_cast<std::int64_t>(x);
            }
            sum += point.cost;
        }
        work_mem_[slice] = sum;
    });
    cost_ = sum_of_slices() + z_ * static_cast<double>(open_.size());
}

// Initial solution: a point becomes a centre with a probability of its cost over z. Stops at twice the wanted number of centres:
// the gains close what is too much.
void LocalSearch::speedy() {
    open_alone(0);
    for (std::size_t i = 1; i < points_.num && open_.size() < 2 * limits_.kmax; i++) {
        const bool opens = rng_unit(&rng_) * z_ < static_cast<double>(points_.p[i].cost);
        if (opens && !is_center_[i]) open(i);
    }
}

// One slice of gain(): what would change if x were opened.
void LocalSearch::evaluate(std::size_t slice, std::size_t x) {
    double *extra = &work_mem_[slice * stride_];
    std::fill(extra, extra + open_.size() + 1, 0.0);
    double saved = 0;
    const float *candidate = points_.p[x].coord;
    const std::size_t last = std::min((slice + 1) * kSlicePoints, points_.num);
    for (std::size_t i = slice * kSlicePoints; i < last; i++) {
        const Point &point = points_.p[i];
        const float cost = squared_distance(point.coord, candidate, points_.dim) * point.weight;
        const float change = cost - point.cost;
        const bool switches = change < 0;
        switch_membership_[i] = switches;
        if (switches) {
            saved -= static_cast<double>(change);
        } else {
            extra[center_table_[point.assign]] += static_cast<double>(change);
        }
    }
    extra[open_.size()] = saved;
}

// Carries out an accepted gain in one slice.
void LocalSearch::switch_points(std::size_t slice, std::size_t x, const std::vector<char> &closes) {
    const std::size_t last = std::min((slice + 1) * kSlicePoints, points_.num);
    for (std::size_t i = slice * kSlicePoints; i < last; i++) {
        Point &point = points_.p[i];
        if (!switch_membership_[i] && !closes[static_cast<std::size_t>(center_table_[point.assign])]) continue;
        point.cost = squared_distance(point.coord, points_.p[x].coord, points_.dim) * point.weight;
        point.assign = static_cast<std::int64_t>(x);
    }
}

// Opens x, closing the centres that are then not worth their cost, if that lowers the total. Returns by how much it did.
double LocalSearch::gain(std::size_t x) {
    if (is_center_[x]) return 0;
    evaluations_++;
    const std::size_t count = open_.size();
    for (std::size_t c = 0; c < count; c++) center_table_[open_[c]] = static_cast<int>(c);
    stride_ = (count + 1 + 7) / 8 * 8;
    work_mem_.resize(std::max(work_mem_.size(), slices() * stride_));
    each_slice([&](std::size_t slice, std::size_t, std::size_t) { evaluate(slice, x); });

    std::vector<double> total(count + 1, 0.0);
    for (std::size_t slice = 0; slice < slices(); slice++) {
        for (std::size_t c = 0; c <= count; c++) total[c] += work_mem_[slice * stride_ + c];
    }
    double improvement = total[count] - z_;
    std::vector<char> closes(count, 0);
    for (std::size_t c = 0; c < count; c++) {
        if (total[c] < z_) {
            closes[c] = 1;
            improvement += z_ - total[c];
        }
    }
    if (improvement <= 0) return 0;

    each_slice([&](std::size_t slice, std::size_t, std::size_t) { switch_points(slice, x, closes); });
    std::vector<std::size_t> kept;
    for (std::size_t c = 0; c < count; c++) {
        if (closes[c]) {
            is_center_[open_[c]] = 0;
        } else {
            kept.push_back(open_[c]);
        }
    }
    kept.push_back(x);
    is_center_[x] = 1;
    open_ = std::move(kept);
    cost_ -= improvement;
    return improvement;
}

// Rounds of gains of random candidates until a round gains next to nothing. Returns the last round's gain as a share of the cost.
double LocalSearch::improve() {
    constexpr double kEnough = 0.01;
    double share = 1;
    for (std::size_t round = 0; round < limits_.rounds && share > kEnough; round++) {
        double gained = 0;
        for (std::size_t i = 0; i < limits_.candidates; i++) {
            gained += gain(rng_below(&rng_, static_cast<std::uint32_t>(points_.num)));
        }
        share = gained / (cost_ + gained);
    }
    return share;
}

void LocalSearch::cluster() {
    if (points_.num <= limits_.kmax) {
        // Every point can be a centre.
        z_ = 0;
        open_alone(0);
        for (std::size_t i = 1; i < points_.num; i++) open(i);
        return;
    }
    z_ = 0;
    open_alone(0);
    double low = 0, high = cost_;
    z_ = high / static_cast<double>(limits_.kmax);
    speedy();
    for (;;) {
        improve();
        if (open_.size() > limits_.kmax) {
            low = z_;
        } else if (open_.size() < limits_.kmin) {
            high = z_;
        } else {
            return;
        }
        if (low >= 0.999 * high) return;
        z_ = (low + high) / 2;
        double points_cost = 0;
        for (std::size_t i = 0; i < points_.num; i++) points_cost += static_cast<double>(points_.p[i].cost);
        cost_ = points_cost + z_ * static_cast<double>(open_.size());
    }
}

std::vector<std::size_t> LocalSearch::centers() const {
    std::vector<std::size_t> sorted = open_;
    std::sort(sorted.begin(), sorted.end());
    return sorted;
}

std::string LocalSearch::verify() {
    std::vector<std::size_t> wrong(slices(), 0);
    std::vector<double> sums(slices(), 0.0);
    each_slice([&](std::size_t slice, std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; i++) {
            const Point &point = points_.p[i];
            double exact = 0;
            for (int d = 0; d < points_.dim; d++) {
                const double difference = static_cast<double>(point.coord[d]) - static_cast<double>(points_.p[point.assign].coord[d]);
                exact += difference * difference;
            }
            exact *= static_cast<double>(point.weight);
            const bool holds = is_center_[point.assign] && std::abs(exact - static_cast<double>(point.cost)) <= 1e-4 * exact + 1e-6;
            wrong[slice] += !holds;
            sums[slice] += exact;
        }
    });
    std::size_t wrong_total = 0;
    double exact_total = z_ * static_cast<double>(open_.size());
    for (std::size_t slice = 0; slice < slices(); slice++) {
        wrong_total += wrong[slice];
        exact_total += sums[slice];
    }
    if (wrong_total) return std::to_string(wrong_total) + " points have a closed centre or a wrong cost";
    if (std::abs(exact_total - cost_) > 1e-3 * exact_total) {
        return "the total cost should be " + std::to_string(exact_total) + ", not " + std::to_string(cost_);
    }
    return {};
}
