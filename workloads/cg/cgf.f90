! Conjugate gradient in Fortran and OpenMP: one implicit step of the heat equation on a square grid, A u = b with the five-point
! matrix, whose product is computed and not stored. b is made from a random u, which makes the check.
!
! Naive: the first thread sets up the vectors, so all pages lie on its node. Parallel: every thread sets up its own rows.
! Sums are taken per grid line and then in the order of the lines: results do not depend on the number of threads.
module solver
  use, intrinsic :: iso_fortran_env, only: real64, int64
  implicit none
  integer, parameter :: dp = real64
contains
  ! y = A x and the inner product x.y, on an n x n grid with zeros around.
  subroutine multiply(n, x, y, line_sums)
    integer, intent(in) :: n
    real(dp), intent(in) :: x(0:n + 1, 0:n + 1)
    real(dp), intent(inout) :: y(0:n + 1, 0:n + 1)
    real(dp), intent(inout) :: line_sums(n)
    integer :: i, j
    real(dp) :: total
    !$omp parallel do schedule(static) private(i, total)
    do j = 1, n
      total = 0
      do i = 1, n
        y(i, j) = 5 * x(i, j) - x(i - 1, j) - x(i + 1, j) - x(i, j - 1) - x(i, j + 1)
        total = total + x(i, j) * y(i, j)
      end do
      line_sums(j) = total
    end do
  end subroutine multiply

  ! u = u + alpha p; r = r - alpha q; the square of r's norm per line.
  subroutine advance(n, alpha, p, q, u, r, line_sums)
    integer, intent(in) :: n
    real(dp), intent(in) :: alpha, p(0:n + 1, 0:n + 1), q(0:n + 1, 0:n + 1)
    real(dp), intent(inout) :: u(0:n + 1, 0:n + 1), r(0:n + 1, 0:n + 1), line_sums(n)
    integer :: i, j
    real(dp) :: total
    !$omp parallel do schedule(static) private(i, total)
    do j = 1, n
      total = 0
      do i = 1, n
        u(i, j) = u(i, j) + alpha * p(i, j)
        r(i, j) = r(i, j) - alpha * q(i, j)
        total = total + r(i, j)**2
      end do
      line_sums(j) = total
    end do
  end subroutine advance

  ! p = r + beta p
  subroutine turn(n, beta, r, p)
    integer, intent(in) :: n
    real(dp), intent(in) :: beta, r(0:n + 1, 0:n + 1)
    real(dp), intent(inout) :: p(0:n + 1, 0:n + 1)
    integer :: j
    !$omp parallel do schedule(static)
    do j = 1, n
      p(1:n, j) = r(1:n, j) + beta * p(1:n, j)
    end do
  end subroutine turn

  ! Writes zeros into one vector, in the lines' own threads or in the calling one.
  subroutine set_zero(n, vector, by_owner)
    integer, intent(in) :: n
    real(dp), intent(out) :: vector(0:n + 1, 0:n + 1)
    logical, intent(in) :: by_owner
    integer :: j
    !$omp parallel do schedule(static) if (by_owner)
    do j = 0, n + 1
      vector(:, j) = 0
    end do
  end subroutine set_zero
end module solver

module arguments
  use, intrinsic :: iso_fortran_env, only: int64, error_unit, output_unit
  use, intrinsic :: iso_c_binding, only: c_int
  implicit none
  integer, parameter :: exit_wrong_result = 1, exit_usage = 2, exit_system = 3
  integer :: threads = 16, rows = 0, steps = 0, size_index = 2
  integer(int64) :: seed = 1
  logical :: by_owner = .false.
  interface
    subroutine c_exit(status) bind(c, name='exit')
      import :: c_int
      integer(c_int), value :: status
    end subroutine c_exit
  end interface
contains
  subroutine fail(status, message)
    integer, intent(in) :: status
    character(*), intent(in) :: message
    write (error_unit, '(2a)') 'cgf: ', message
    flush (error_unit)
    call c_exit(int(status, c_int))
  end subroutine fail

  subroutine help()
    print '(a)', 'cgf: implicit heat step on a square grid by conjugate gradients, in Fortran', &
      '', 'Usage: cgf [options]', '', 'Options:', &
      '  --size test|small|medium|large   preset of the sizes below [small]', &
      '  --variant naive|parallel         who touches the memory first [naive]', &
      '  --threads N                      threads that share the work [16]', &
      '  --seed N                         seed of everything random; the output depends on it alone [1]', &
      '  --rows N                         lines of the grid, and points of each', &
      '  --steps N                        most steps of the method', &
      '  --help                           this text', '', &
      'Exit status: 0 verified result, 1 wrong result, 2 bad option, 3 the system refused something'
    flush (output_unit)
    call c_exit(0_c_int)
  end subroutine help

  function number(name, text, low, high) result(value)
    character(*), intent(in) :: name, text
    integer(int64), intent(in) :: low, high
    integer(int64) :: value
    integer :: status
    character(160) :: message
    value = 0
    status = 1
    if (verify(text, '0123456789') == 0 .and. len(text) > 0) read (text, *, iostat=status) value
    if (status /= 0) call fail(exit_usage, '--'//name//' takes a whole number, not `'//text//'`')
    if (value < low .or. value > high) then
      write (message, '(3a, i0, a, i0)') '--', name, ' must lie between ', low, ' and ', high
      call fail(exit_usage, trim(message)//', not '//text)
    end if
  end function number

  function choice(name, text, choices) result(found)
    character(*), intent(in) :: name, text, choices(:)
    integer :: found
    do found = 1, size(choices)
      if (choices(found) == text) return
    end do
    call fail(exit_usage, '--'//name//' cannot be `'//text//'` (--help lists the choices)')
  end function choice

  subroutine parse()
    character(200) :: argument, value
    integer :: at, equals
    integer, parameter :: preset_rows(4) = [96, 2048, 6144, 12288], preset_steps(4) = 60
    at = 1
    do while (at <= command_argument_count())
      call get_command_argument(at, argument)
      at = at + 1
      if (argument == '--help' .or. argument == '-h') call help()
      equals = index(argument, '=')
      if (equals > 0) then
        value = argument(equals + 1:)
        argument = argument(:equals - 1)
      else
        value = ''
        if (at <= command_argument_count()) call get_command_argument(at, value)
        at = at + 1
      end if
      if (all([character(9) :: '--size', '--variant', '--threads', '--seed', '--rows', '--steps'] /= argument)) &
        call fail(exit_usage, 'no such option: `'//trim(argument)//'` (--help lists them)')
      if (value == '') call fail(exit_usage, trim(argument)//' needs a value')
      select case (argument)
      case ('--size')
        size_index = choice('size', trim(value), [character(6) :: 'test', 'small', 'medium', 'large'])
      case ('--variant')
        by_owner = choice('variant', trim(value), [character(8) :: 'naive', 'parallel']) == 2
      case ('--threads')
        threads = int(number('threads', trim(value), 1_int64, 1024_int64))
      case ('--seed')
        seed = number('seed', trim(value), 0_int64, huge(seed))
      case ('--rows')
        rows = int(number('rows', trim(value), 4_int64, 30000_int64))
      case ('--steps')
        steps = int(number('steps', trim(value), 1_int64, 1000000_int64))
      end select
    end do
    if (rows == 0) rows = preset_rows(size_index)
    if (steps == 0) steps = preset_steps(size_index)
  end subroutine parse
end module arguments

program cgf
  use solver
  use arguments
  use omp_lib
  implicit none
  real(dp), allocatable :: u(:, :), r(:, :), p(:, :), q(:, :), line_sums(:)
  real(dp) :: rho, rho_before, rho_start, energy
  integer :: step, status
  call parse()
  call omp_set_dynamic(.false.)
  call omp_set_num_threads(threads)
  write (error_unit, '(3a, i0, a)') 'cgf: ', trim(merge('parallel', 'naive   ', by_owner)), ', ', threads, ' threads'
  allocate (u(0:rows + 1, 0:rows + 1), r(0:rows + 1, 0:rows + 1), p(0:rows + 1, 0:rows + 1), q(0:rows + 1, 0:rows + 1), &
            line_sums(rows), stat=status)
  if (status /= 0) call fail(exit_system, 'out of memory; choose a smaller --size')
  call set_zero(rows, u, by_owner)
  call set_zero(rows, r, by_owner)
  call set_zero(rows, p, by_owner)
  call set_zero(rows, q, by_owner)
  ! u is known here, to make b; then forgotten.
  call set_exact(q)
  call multiply(rows, q, r, line_sums)
  call set_zero(rows, q, by_owner)
  call turn(rows, 0.0_dp, r, p)
  call advance(rows, 0.0_dp, p, q, u, r, line_sums)
  rho = sum_in_order()
  rho_start = rho
  do step = 1, steps
    if (rho <= rho_start * 1e-24_dp) exit
    call multiply(rows, p, q, line_sums)
    energy = sum_in_order()
    rho_before = rho
    call advance(rows, rho_before / energy, p, q, u, r, line_sums)
    rho = sum_in_order()
    call turn(rows, rho / rho_before, r, p)
  end do
  call check(step - 1)
contains
  real(dp) function sum_in_order() result(total)
    integer :: j
    total = 0
    do j = 1, rows
      total = total + line_sums(j)
    end do
  end function sum_in_order

  ! The solution: random numbers in (0, 1), each line from a generator of its own (Park and Miller's, multiplier 48271).
  subroutine set_exact(vector)
    real(dp), intent(inout) :: vector(0:rows + 1, 0:rows + 1)
    integer :: j
    !$omp parallel do schedule(static) if (by_owner)
    do j = 1, rows
      call exact_line(j, vector(1:rows, j))
    end do
  end subroutine set_exact

  subroutine exact_line(line, values)
    integer, intent(in) :: line
    real(dp), intent(out) :: values(:)
    integer(int64), parameter :: modulus = 2147483647_int64
    integer(int64) :: state
    integer :: i
    state = 1 + mod(mod(seed, modulus) * 69621 + line * 104729_int64, modulus - 1)
    do i = 1, size(values)
      state = mod(state * 48271, modulus)
      values(i) = real(state, dp) / real(modulus, dp)
    end do
  end subroutine exact_line

  subroutine check(done)
    integer, intent(in) :: done
    real(dp) :: error, exact(rows)
    integer :: i, j
    integer(int64) :: hash
    error = 0
    hash = 0
    do j = 1, rows
      call exact_line(j, exact)
      error = max(error, maxval(abs(u(1:rows, j) - exact)))
      do i = 1, rows
        hash = ieor(ishftc(hash, 7), transfer(u(i, j), hash))
      end do
    end do
    if (.not. error <= 1e-9_dp) call fail(exit_wrong_result, 'wrong result: the solution is not the one that b was made from')
    write (output_unit, '(a, i0, a, i0, a, es10.3, a, z16.16)') 'cgf ok rows=', rows, ' steps=', done, ' error=', error, &
      ' checksum=', hash
  end subroutine check
end program cgf
